/**
 * Limits the memory of request bodies that are being received, and decides which body is dropped when the limit is
 * reached.
 */

/** Rate at which a body must arrive to count as on time: 128 kbit/s, less than any connection that people work with. */
const PACE_BYTES_PER_MS = 16;

/**
 * A body that is at most this far behind the required rate keeps its memory. This covers the pause of a slow connection
 * or of a busy client.
 */
const BEHIND_MAX_MS = 2_000;

/**
 * Memory of incomplete bodies. If memory is short, a body that is too far behind is dropped, so that a client that
 * sends nothing does not block others.
 */
export class BodyMemory {
  readonly #maxBytes: number;
  readonly #open = new Set<BodyReservation>();
  #heldBytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Number of bytes that all incomplete bodies hold. */
  get held(): number {
    return this.#heldBytes;
  }

  /**
   * Call `end` of the result when the body is complete or refused.
   * @param now milliseconds of one clock
   */
  begin(now: number): BodyReservation {
    const upload = new BodyReservation(this, now);
    this.#open.add(upload);
    return upload;
  }

  /**
   * Takes `bytes` more for `upload`. Returns false if there is not enough memory, even without the bodies that are too
   * far behind.
   */
  take(upload: BodyReservation, bytes: number, now: number): boolean {
    while (this.#heldBytes + bytes > this.#maxBytes) {
      const last = this.#furthestBehind(upload, now);
      if (last === undefined) return false;
      last.giveUp();
    }
    this.#heldBytes += bytes;
    return true;
  }

  #furthestBehind(asker: BodyReservation, now: number): BodyReservation | undefined {
    let furthest: BodyReservation | undefined;
    for (const upload of this.#open) {
      if (upload === asker || upload.behindMs(now) <= BEHIND_MAX_MS) continue;
      if (furthest === undefined || upload.behindMs(now) > furthest.behindMs(now)) furthest = upload;
    }
    return furthest;
  }

  giveBack(upload: BodyReservation, bytes: number): void {
    this.#heldBytes -= bytes;
    this.#open.delete(upload);
  }
}

/** One body that is being received. */
export class BodyReservation {
  readonly #uploads: BodyMemory;
  /**
   * The moment up to which the received bytes satisfy the required rate. The body is behind by the time since this
   * moment.
   */
  #paidUntil: number;
  #heldBytes = 0;
  #finished = false;
  #givenUp = false;

  constructor(uploads: BodyMemory, now: number) {
    this.#uploads = uploads;
    this.#paidUntil = now;
  }

  /** True if the body was dropped to free memory. Its reader answers 408. */
  get givenUp(): boolean {
    return this.#givenUp;
  }

  behindMs(now: number): number {
    return now - this.#paidUntil;
  }

  received(bytes: number, now: number): void {
    this.#paidUntil = Math.min(now, this.#paidUntil + bytes / PACE_BYTES_PER_MS);
  }

  /** Raises the body's memory to `bytes`. Returns false if there is not enough memory. */
  hold(bytes: number, now: number): boolean {
    if (this.#finished || bytes <= this.#heldBytes) return true;
    if (!this.#uploads.take(this, bytes - this.#heldBytes, now)) {
      this.#paidUntil = now; // The body waits for memory, so it is not behind.
      return false;
    }
    this.#heldBytes = bytes;
    return true;
  }

  giveUp(): void {
    this.#givenUp = true;
    this.end();
  }

  /** Frees the memory. Idempotent. */
  end(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#uploads.giveBack(this, this.#heldBytes);
    this.#heldBytes = 0;
  }
}
