/**
 * Whether this gateway can write to its storage, and what is done while it cannot: requests are served, records wait in memory within
 * a bound, /readyz and one line a minute in the log say why. Pure: times are handed in.
 *
 * A failure is known from a write that fails, or from the host, which looks at the data directory. What a host reports, only the host
 * takes back. After a failed write another write is tried once a second.
 */

import { isRecent } from '../../../shared/collections/is-recent.ts';

/** A write is tried again so long after one that failed. */
export const RETRY_MS = 1_000;

/** One line in so long while the failure lasts. */
const LOG_EVERY_MS = 60_000;

/** Records of all nodes together that wait in this process's memory: some 1 KiB each. */
const HELD_MAX = 50_000;

/** Reasons come from operating systems and databases. */
const REASON_MAX_CHARS = 200;

export interface StorageFailure {
  reason: string;
  /** Milliseconds since the epoch. */
  since: number;
}

/** A write that was not tried, since the one before it failed. */
export class StorageFailingError extends Error {
  constructor({ reason }: StorageFailure) {
    super(`storage cannot be written: ${reason}`);
    this.name = 'StorageFailing';
  }
}

/** What SQLite and its hosts say where the storage is at fault, and not the statement. */
const STORAGE_ERROR =
  /SQLITE_(FULL|IOERR|READONLY|BUSY|CANTOPEN)|disk is full|disk I\/O error|readonly database|database is locked|unable to open database/i;

export class StorageHealth {
  readonly #log: (line: string) => void;
  /** Of all storages here; records of all of them wait in one memory. */
  readonly #whole: StorageHealth | undefined;
  #failure: StorageFailure | undefined;
  /** The host reported it. */
  #byHost = false;
  #triedAt = 0;
  #partFailedAt = 0;
  #loggedAt = 0;
  #held = 0;
  #heldMax = HELD_MAX;
  #lost = 0;
  #lostSinceFailure = 0;

  constructor(log: (line: string) => void, whole?: StorageHealth) {
    this.#log = log;
    this.#whole = whole;
  }

  /** Of one storage that fails by itself: the others go on. */
  part(name: string): StorageHealth {
    return new StorageHealth((line) => this.#log(`${name}: ${line}`), this);
  }

  /** Undefined: writes succeed as far as is known. */
  get failure(): StorageFailure | undefined {
    return this.#failure;
  }

  /** It fails, or a part of it did within a minute. */
  isFailing(now: number): boolean {
    return this.#failure !== undefined || isRecent(LOG_EVERY_MS, this.#partFailedAt, now);
  }

  /** Records that wait in memory. */
  get held(): number {
    return this.#whole?.held ?? this.#held;
  }

  /** Records that were given up because too many waited. */
  get lost(): number {
    return this.#lost;
  }

  /** @throws StorageFailingError unless a write may be tried now */
  require(now: number): void {
    if (this.#failure === undefined) return;
    if (this.#byHost || isRecent(RETRY_MS, this.#triedAt, now)) throw new StorageFailingError(this.#failure);
    this.#triedAt = now;
  }

  /** A write succeeded. */
  wrote(now: number): void {
    if (this.#failure !== undefined && !this.#byHost) this.#recover(now);
  }

  /** A write failed. False: the storage was not the cause. */
  failed(error: unknown, now: number): boolean {
    if (error instanceof StorageFailingError) return true;
    const message = error instanceof Error ? error.message : String(error);
    if (!STORAGE_ERROR.test(message)) return false;
    this.#triedAt = now;
    this.#fail(message, now);
    return true;
  }

  /** The host's word; null: writes succeed. Said again while the failure lasts. */
  tell(reason: string | null, now: number): void {
    if (reason === null) return this.#failure === undefined ? undefined : this.#recover(now);
    this.#byHost = true;
    this.#fail(reason, now);
  }

  /** How many records may wait from now on; undefined, or no number: the default. */
  holdAtMost(records: number | undefined): void {
    this.#heldMax = records !== undefined && records > 0 ? records : HELD_MAX;
  }

  /** Records wait. How many of the oldest the caller has to give up: they are counted as lost. */
  hold(records: number): number {
    if (this.#whole !== undefined) return this.#whole.hold(records);
    this.#held += records;
    return Math.min(records, Math.max(0, this.#held - this.#heldMax));
  }

  /** Records wait no more. */
  release(records: number): void {
    if (this.#whole !== undefined) return this.#whole.release(records);
    this.#held -= records;
  }

  /** Records that waited in memory are given up. */
  lose(records: number): void {
    this.release(records);
    this.giveUp(records);
  }

  /** Records are given up. */
  giveUp(records: number): void {
    this.#whole?.giveUp(records);
    this.#lost += records;
    this.#lostSinceFailure += records;
  }

  #fail(said: string, now: number): void {
    const reason = said.slice(0, REASON_MAX_CHARS);
    const since = this.#failure?.since ?? now;
    this.#failure = { reason, since };
    if (this.#whole !== undefined) this.#whole.#partFailedAt = now;
    if (isRecent(LOG_EVERY_MS, this.#loggedAt, now)) return;
    this.#loggedAt = now;
    const lost = this.#lostSinceFailure > 0 ? `, ${this.#lostSinceFailure} were lost` : '';
    this.#log(
      `storage cannot be written since ${new Date(since).toISOString()}: ${reason}. ` +
        `Requests are served; ${this.held} usage records wait in memory${lost}.`,
    );
  }

  #recover(now: number): void {
    const seconds = Math.max(0, Math.round((now - (this.#failure?.since ?? now)) / 1_000));
    const lost = this.#lostSinceFailure > 0 ? ` ${this.#lostSinceFailure} usage records were lost.` : '';
    this.#log(`storage can be written again after ${seconds} s; ${this.held} usage records are written now.${lost}`);
    this.#failure = undefined;
    this.#byHost = false;
    this.#loggedAt = 0;
    this.#lostSinceFailure = 0;
  }
}

/** Of this process; on Cloudflare, where each object's storage fails by itself, of all objects of this isolate. */
export const storageHealth = new StorageHealth((line) => console.error(line));

/** Runs a write that may be left out while the storage fails. False: it was left out. */
export function writeIfPossible(write: () => void): boolean {
  try {
    write();
    return true;
  } catch (error) {
    if (!storageHealth.failed(error, Date.now())) throw error;
    return false;
  }
}
