import { isRecent } from '../../shared/collections/is-recent.ts';

/** Leases pause for so long after the file store has failed a node: then one is tried again. */
const PAUSE_MS = 5_000;
/** A step that fails in the same way so often is tried no more: one that needs seconds of the gateway's thread would need them all day. */
const FAULTS_MAX = 3;
/** A message stays for longer than a pause, so that it does not flicker between two tries. */
const SHOWN_MS = 3 * PAUSE_MS;

/** Why a batch does not go on now. In memory: after a restart it is found out anew. */
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

  /** A step failed by no fault of a store. @returns whether it fails in the same way for the third time: it would do so for ever */
  recurs(fault: string): boolean {
    this.#faults = fault === this.#fault ? this.#faults + 1 : 1;
    this.#fault = fault;
    return this.#faults >= FAULTS_MAX;
  }

  /** A step was done. */
  passed(): void {
    this.#faults = 0;
  }

  clear(): void {
    this.#at = Number.NEGATIVE_INFINITY;
  }

  /** Nothing is to be begun now. */
  blocks(nowMs: number): boolean {
    return isRecent(PAUSE_MS, this.#at, nowMs);
  }

  shown(nowMs: number): string | null {
    return isRecent(SHOWN_MS, this.#at, nowMs) ? this.#message : null;
  }
}
