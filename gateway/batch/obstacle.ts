/** Leases pause for so long after the file store has failed a node: then one is tried again. */
const PAUSE_MS = 5_000;
/** A message stays for longer than a pause, so that it does not flicker between two tries. */
const SHOWN_MS = 3 * PAUSE_MS;

/** Why a batch does not go on now. In memory: after a restart it is found out anew. */
export class Obstacle {
  #message = '';
  #at = Number.NEGATIVE_INFINITY;

  /** @param message for the batch's owner */
  meet(message: string, nowMs: number): void {
    this.#message = message;
    this.#at = nowMs;
  }

  clear(): void {
    this.#at = Number.NEGATIVE_INFINITY;
  }

  /** Nothing is to be begun now. */
  blocks(nowMs: number): boolean {
    return nowMs - this.#at < PAUSE_MS;
  }

  shown(nowMs: number): string | null {
    return nowMs - this.#at < SHOWN_MS ? this.#message : null;
  }
}
