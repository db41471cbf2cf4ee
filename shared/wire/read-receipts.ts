/**
 * Control bytes after which the peer is asked to confirm: rarely enough to cost nothing, often enough to react well
 * before the limit.
 */
const RECEIPT_EVERY_BYTES = 64 * 1024;

/** Limit of unconfirmed control bytes: a second of 5,000 openings, plus the round trip of a slow path. */
export const UNREAD_MAX_BYTES = 4 * 1024 * 1024;

/** Above the numbers of all other probes, which are counted from 1. */
const NONCE_MIN = 2 ** 40;

/**
 * Detects whether the peer reads, if the runtime does not tell. workerd queues everything that a WebSocket is given,
 * without limit or notice. Credit bounds DATA. For all other frames a question (PROBE) is sent in the same byte order.
 * Its number is random, so only a peer that reads can answer it.
 */
export class ReadReceipts {
  readonly #random: () => number;
  /** Bytes sent and not confirmed. */
  #unread = 0;
  /** The open question, and how many bytes its answer confirms. */
  #open: { nonce: number; confirms: number } | undefined;

  /** `random`: 0 ≤ x < 1. */
  constructor(random: () => number) {
    this.#random = random;
  }

  get stuck(): boolean {
    return this.#unread > UNREAD_MAX_BYTES;
  }

  /** `bytes` were passed to the runtime. Returns the number of a question to send, if one is due. */
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
