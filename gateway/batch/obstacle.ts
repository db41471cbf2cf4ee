import { isRecent } from '../../shared/collections/is-recent.ts';

/** Leases pause for this long after the file store failed a node; then one lease is tried. */
const PAUSE_MS = 5_000;
/**
 * A step that fails in the same way this many times is given up: if it needs seconds of the gateway's thread, it would
 * need them all day.
 */
const FAULTS_MAX = 3;
/** A message is shown for longer than a pause, so that it does not flicker between two tries. */
const SHOWN_MS = 3 * PAUSE_MS;

/** Why a batch makes no progress now. In memory: after a restart it is detected again. */
export class Obstacle {
  #message = '';
  #at = Number.NEGATIVE_INFINITY;
  #fault = '';
  #faults = 0;

  /** @param message for the batch's owner */
  meet(message: string, nowMs: number): void {
    this.#message = message;
    this.#at = nowMs;
  }

  /**
   * A step failed, and no store was at fault. @returns true if it failed in the same way FAULTS_MAX times, and would do
   * so forever
   */
  recurs(fault: string): boolean {
    this.#faults = fault === this.#fault ? this.#faults + 1 : 1;
    this.#fault = fault;
    return this.#faults >= FAULTS_MAX;
  }

  /** A step succeeded. */
  passed(): void {
    this.#faults = 0;
  }

  clear(): void {
    this.#at = Number.NEGATIVE_INFINITY;
  }

  /** True if nothing may be started now. */
  blocks(nowMs: number): boolean {
    return isRecent(PAUSE_MS, this.#at, nowMs);
  }

  shown(nowMs: number): string | null {
    return isRecent(SHOWN_MS, this.#at, nowMs) ? this.#message : null;
  }
}
