/**
 * Tracks whether this gateway can write to its storage. While it cannot, requests are served, records wait in memory up
 * to a maximum, and /readyz and one log line a minute state the reason. Pure: times are passed in. A failure is
 * detected by a write that fails, or by the host, which checks the data directory. A failure that the host reported
 * ends only when the host reports its end. After a failed write, another write is tried once a second.
 */

import { errorText } from '../../../shared/text/error-text.ts';
import { isRecent } from '../../../shared/timing/is-recent.ts';

/** Delay before a write is tried again after a failed write. */
export const RETRY_MS = 1_000;

/** Interval of log lines while the failure lasts. */
const LOG_EVERY_MS = 60_000;

/** Maximum records of all nodes together that wait in this process's memory, about 1 KiB each. */
const HELD_RECORDS_MAX = 50_000;

/** Maximum characters of a reason, which is a message of an operating system or database. */
const REASON_MAX_CHARS = 200;

interface StorageFailure {
  reason: string;
  /** When the failure began; milliseconds since the epoch. */
  since: number;
}

/** A write was not tried, because the previous write failed. */
export class StorageFailingError extends Error {
  constructor({ reason }: StorageFailure) {
    super(`storage cannot be written: ${reason}`);
    this.name = 'StorageFailing';
  }
}

/** Matches error messages of SQLite and of hosts which mean that the storage failed, not the statement. */
const STORAGE_ERROR =
  /SQLITE_(FULL|IOERR|READONLY|BUSY|CANTOPEN)|disk is full|disk I\/O error|readonly database|database is locked|unable to open database/i;

/** True if the storage, and not the statement, made a write fail. */
export function isStorageError(error: unknown): boolean {
  if (error instanceof StorageFailingError) return true;
  return STORAGE_ERROR.test(errorText(error));
}

export class StorageHealth {
  readonly #log: (line: string) => void;
  /**
   * The health of the whole process, which counts the waiting records of all its storages. Undefined if this instance
   * is the health of the whole process.
   */
  readonly #whole: StorageHealth | undefined;
  #failure: StorageFailure | undefined;
  /** True if the host reported the failure. */
  #byHost = false;
  #triedAt = 0;
  #partFailedAt = 0;
  #loggedAt = 0;
  #heldRecords = 0;
  #heldMax = HELD_RECORDS_MAX;
  #lost = 0;
  #lostSinceFailure = 0;

  constructor(log: (line: string) => void, whole?: StorageHealth) {
    this.#log = log;
    this.#whole = whole;
  }

  /** Returns the health of one storage that can fail separately from the others. */
  part(name: string): StorageHealth {
    return new StorageHealth((line) => this.#log(`${name}: ${line}`), this);
  }

  /** The current failure. Undefined: writes succeed as far as is known. */
  get failure(): StorageFailure | undefined {
    return this.#failure;
  }

  /** True if writes fail, or if a part of this storage failed within the last minute. */
  isFailing(now: number): boolean {
    return this.#failure !== undefined || isRecent(LOG_EVERY_MS, this.#partFailedAt, now);
  }

  /** Number of records that wait in memory. */
  get held(): number {
    return this.#whole?.held ?? this.#heldRecords;
  }

  /** Number of records that were given up because too many waited. */
  get lost(): number {
    return this.#lost;
  }

  /** @throws StorageFailingError unless a write may be tried now */
  require(now: number): void {
    if (this.#failure === undefined) return;
    if (this.#byHost || isRecent(RETRY_MS, this.#triedAt, now)) throw new StorageFailingError(this.#failure);
    this.#triedAt = now;
  }

  /** Records that a write succeeded. */
  wrote(now: number): void {
    if (this.#failure !== undefined && !this.#byHost) this.#recover(now);
  }

  /** Records that a write failed. Returns false if the storage was not the cause. */
  failed(error: unknown, now: number): boolean {
    if (error instanceof StorageFailingError) return true;
    if (!isStorageError(error)) return false;
    this.#triedAt = now;
    this.#fail(errorText(error), now);
    return true;
  }

  /**
   * The host calls this with the reason of a failure, repeatedly while the failure lasts, and with null when writes
   * succeed again.
   */
  setFailure(reason: string | null, now: number): void {
    if (reason === null) return this.#failure === undefined ? undefined : this.#recover(now);
    this.#byHost = true;
    this.#fail(reason, now);
  }

  /** Sets how many records may wait; undefined or not positive: the default. */
  holdAtMost(records: number | undefined): void {
    this.#heldMax = records !== undefined && records > 0 ? records : HELD_RECORDS_MAX;
  }

  /** Adds waiting records. Returns how many of the oldest the caller must give up; they count as lost. */
  hold(records: number): number {
    if (this.#whole !== undefined) return this.#whole.hold(records);
    this.#heldRecords += records;
    return Math.min(records, Math.max(0, this.#heldRecords - this.#heldMax));
  }

  /** Removes waiting records that were written. */
  release(records: number): void {
    if (this.#whole !== undefined) return this.#whole.release(records);
    this.#heldRecords -= records;
  }

  /** Removes waiting records that are given up. */
  lose(records: number): void {
    this.release(records);
    this.giveUp(records);
  }

  /** Counts records that are given up. The number of waiting records does not change. */
  giveUp(records: number): void {
    this.#whole?.giveUp(records);
    this.#lost += records;
    this.#lostSinceFailure += records;
  }

  #fail(message: string, now: number): void {
    const reason = message.slice(0, REASON_MAX_CHARS);
    const since = this.#failure?.since ?? now;
    this.#failure = { reason, since };
    if (this.#whole !== undefined) this.#whole.#partFailedAt = now;
    if (isRecent(LOG_EVERY_MS, this.#loggedAt, now)) return;
    this.#loggedAt = now;
    const lost = this.#lostSinceFailure > 0 ? `, ${this.#lostSinceFailure} were lost` : '';
    this.#log(
      `storage has not been writable since ${new Date(since).toISOString()}: ${reason}. ` +
        `Requests still work; ${this.held} usage records wait in memory${lost}.`,
    );
  }

  #recover(now: number): void {
    const seconds = Math.max(0, Math.round((now - (this.#failure?.since ?? now)) / 1_000));
    const lost = this.#lostSinceFailure > 0 ? ` ${this.#lostSinceFailure} usage records were lost.` : '';
    this.#log(`storage is writable again after ${seconds} s; ${this.held} usage records are written now.${lost}`);
    this.#failure = undefined;
    this.#byHost = false;
    this.#loggedAt = 0;
    this.#lostSinceFailure = 0;
  }
}

/**
 * The health of this process's storage. On Cloudflare the process is an isolate, and each of its objects has a `part`,
 * because the storage of one object can fail without the others.
 */
export const storageHealth = new StorageHealth((line) => console.error(line));

/** Runs a write that may be skipped while the storage fails. Returns false if it was skipped. */
export function writeIfPossible(write: () => void): boolean {
  try {
    write();
    return true;
  } catch (error) {
    if (!storageHealth.failed(error, Date.now())) throw error;
    return false;
  }
}
