/**
 * After this number of control bytes the peer must confirm that it has read them. This is rare enough to cost little,
 * and frequent enough to react before UNREAD_MAX_BYTES.
 */
const CONFIRM_EVERY_BYTES = 64 * 1024;

/**
 * Maximum number of unconfirmed control bytes: those of 5,000 openings in one second, and of the round trip of a slow
 * path.
 */
export const UNREAD_MAX_BYTES = 4 * 1024 * 1024;

/**
 * Smallest nonce of the PROBE frames that are sent here. The nonces of all other PROBE frames are counted from 1, and
 * stay below it.
 */
const NONCE_MIN = 2 ** 40;

/**
 * Detects whether the peer reads, for runtimes that do not report it: workerd queues everything that is sent to a
 * WebSocket, without limit or notice. Credit limits DATA. To limit all other frames, a PROBE frame is sent after some
 * of them, in order. Its number is random, so a peer can answer it only after reading it.
 */
export class ReadConfirmations {
  readonly #random: () => number;
  /** Number of bytes sent and not confirmed. */
  #unread = 0;
  /** The unanswered PROBE, and the number of bytes that its answer confirms. */
  #open: { nonce: number; confirms: number } | undefined;

  /** `random` returns a number x with 0 ≤ x < 1. */
  constructor(random: () => number) {
    this.#random = random;
  }

  get stuck(): boolean {
    return this.#unread > UNREAD_MAX_BYTES;
  }

  /** Call when `bytes` were passed to the runtime. Returns the nonce of a PROBE that must be sent now, if any. */
  sent(bytes: number): number | undefined {
    this.#unread += bytes;
    if (this.#open !== undefined || this.#unread < CONFIRM_EVERY_BYTES) return undefined;
    const nonce = NONCE_MIN + Math.floor(this.#random() * NONCE_MIN);
    this.#open = { nonce, confirms: this.#unread };
    return nonce;
  }

  /** Call when a PROBED frame has arrived. Returns false if it does not answer a PROBE of this object. */
  answered(nonce: number): boolean {
    if (this.#open?.nonce !== nonce) return false;
    this.#unread -= this.#open.confirms;
    this.#open = undefined;
    return true;
  }
}
