import { ApiError } from '../../shared/openai/api-errors.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { isRecent } from '../../shared/timing/is-recent.ts';
import { FileStoreError } from '../files/file-store.ts';
import { STORE_MESSAGES } from '../files/store-access.ts';
import { isStorageError } from '../platform/storage/storage-health.ts';
import { STEP_FAILED } from './error-messages.ts';

/** After the file store failed for a node, no lease is granted for this time. Then one lease is tried. */
const PAUSE_MS = 5_000;
/**
 * A step that fails this many times in the same way is given up, because further tries would fail too, and each may
 * occupy the gateway's thread for long.
 */
const FAULTS_MAX = 3;
/**
 * How long the owner sees a message: longer than a pause, so that the message does not vanish and return between two
 * tries.
 */
const SHOWN_MS = 3 * PAUSE_MS;
/** How long the owner sees why a node declined a function. The node asks again after ten minutes. */
const DECLINED_MS = 900_000;

/** The results do not fit into the owner's file quota. The message is shown to the owner. */
export class FileQuotaError extends Error {}

/** Another object did not answer, or its storage failed. The same call may succeed later. */
class ObjectUnavailableError extends Error {
  constructor(object: string, cause: unknown) {
    super(`the ${object} cannot be reached: ${errorText(cause)}`, { cause });
  }
}

/**
 * Awaits calls of another object, and converts any error to an ObjectUnavailableError, so that the batch is not
 * considered faulty.
 * @throws ObjectUnavailableError
 */
export async function objectOrUnavailable<T>(object: string, calls: Promise<T>): Promise<T> {
  try {
    return await calls;
  } catch (cause) {
    throw new ObjectUnavailableError(object, cause);
  }
}

/** True if the batch's data did not cause the error, because a store, the database or another object is unavailable. */
export function isUnavailable(error: unknown): boolean {
  const kinds = [FileStoreError, FileQuotaError, ApiError, ObjectUnavailableError];
  return isStorageError(error) || kinds.some((kind) => error instanceof kind);
}

/** Returns the part of a failed step's error that the owner sees. The operator's log has all of it. */
export function ownerMessage(error: unknown): string {
  if (error instanceof FileQuotaError) return error.message;
  return error instanceof FileStoreError ? STORE_MESSAGES[error.code] : STEP_FAILED;
}

/** Remembers why a batch makes no progress now. Only in memory: after a restart it is detected again. */
export class Obstacle {
  #message = '';
  #at = Number.NEGATIVE_INFINITY;
  #fault = '';
  #faults = 0;
  #declined = { message: '', at: Number.NEGATIVE_INFINITY };

  /** Records an obstacle. @param message for the batch's owner */
  record(message: string, nowMs: number): void {
    this.#message = message;
    this.#at = nowMs;
  }

  /**
   * Records that a step failed with an error for which `isUnavailable` is false.
   * @returns true if the step has failed in the same way FAULTS_MAX times, so that retries will not help
   */
  recurs(fault: string): boolean {
    this.#faults = fault === this.#fault ? this.#faults + 1 : 1;
    this.#fault = fault;
    return this.#faults >= FAULTS_MAX;
  }

  /** Records that a step succeeded. */
  passed(): void {
    this.#faults = 0;
  }

  clear(): void {
    this.#at = Number.NEGATIVE_INFINITY;
  }

  /** Records that a node does not have what the batch's function declares. Other nodes may still get leases. */
  decline(message: string, nowMs: number): void {
    this.#declined = { message, at: nowMs };
  }

  /** True if no lease may be granted now. */
  blocks(nowMs: number): boolean {
    return isRecent(PAUSE_MS, this.#at, nowMs);
  }

  /** @param isRunning true if a node runs lines, so that it does not matter that another one declined */
  shown(nowMs: number, isRunning: boolean): string | null {
    if (isRecent(SHOWN_MS, this.#at, nowMs)) return this.#message;
    const { message, at } = this.#declined;
    return !isRunning && isRecent(DECLINED_MS, at, nowMs) ? `A node declined: ${message}` : null;
  }
}
