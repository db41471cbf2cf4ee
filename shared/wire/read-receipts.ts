/**
 * Number of control bytes after which the peer is asked to confirm: rare enough to cost little, frequent enough to
 * react before the limit.
 */
const RECEIPT_EVERY_BYTES = 64 * 1024;

/** Limit of unconfirmed control bytes: one second of 5,000 openings, plus the round trip of a slow path. */
export const UNREAD_MAX_BYTES = 4 * 1024 * 1024;

/** Smallest nonce of these probes. The nonces of all other probes are counted from 1, and stay below it. */
const NONCE_MIN = 2 ** 40;

/**
 * Detects whether the peer reads, for runtimes that do not report it. workerd queues everything that is sent to a
 * WebSocket, without limit or notice. DATA is limited by credit. For all other frames a PROBE frame is sent in the same
 * byte order. Its number is random, so only a peer that reads can answer it.
 */
export class ReadReceipts {
  readonly #random: () => number;
  /** Number of bytes sent and not confirmed. */
  #unread = 0;
  /** The unanswered question, and the number of bytes that its answer confirms. */
  #open: { nonce: number; confirms: number } | undefined;

  /** `random` returns a number x with 0 ≤ x < 1. */
  constructor(random: () => number) {
    this.#random = random;
  }

  get stuck(): boolean {
    return this.#unread > UNREAD_MAX_BYTES;
  }

  /** `bytes` were passed to the runtime. Returns the number of a PROBE to send, if one is due. */
  sent(bytes: number): number | undefined {
    this.#unread += bytes;
    if (this.#open !== undefined || this.#unread < RECEIPT_EVERY_BYTES) return undefined;
    const nonce = NONCE_MIN + Math.floor(this.#random() * NONCE_MIN);
    this.#open = { nonce, confirms: this.#unread };
    return nonce;
  }

  /** PROBED arrived. Returns false if it answers another question. */
  answered(nonce: number): boolean {
    if (this.#open?.nonce !== nonce) return false;
    this.#unread -= this.#open.confirms;
    this.#open = undefined;
    return true;
  }
}
