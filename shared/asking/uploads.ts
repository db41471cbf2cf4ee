/** Request bodies on their way in: what all of them together hold, and which of them gives way when that is too much. */

/** A body that began less than this ago is not yet judged slow: a TLS client's first bytes are often a round trip apart. */
const GRACE_MS = 2_000;

/** Memory of bodies that are not here whole. The slowest gives way to the next one, so that a client that sends nothing keeps none out. */
export class Uploads {
  readonly #maxBytes: number;
  readonly #open = new Set<Upload>();
  #held = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes of memory, of all that are open. */
  get held(): number {
    return this.#held;
  }

  /** `now`: milliseconds of any clock, the same in all calls. Call `end` when the body is here or refused. */
  begin(now: number): Upload {
    const upload = new Upload(this, now);
    this.#open.add(upload);
    return upload;
  }

  /** For `upload`; false where there is no room for `bytes` more, and no slower body to take it from. */
  take(upload: Upload, bytes: number, now: number): boolean {
    while (this.#held + bytes > this.#maxBytes) {
      const slowest = this.#slowest(upload, now);
      if (slowest === undefined) return false;
      slowest.giveUp();
    }
    this.#held += bytes;
    return true;
  }

  #slowest(asker: Upload, now: number): Upload | undefined {
    let slowest: Upload | undefined;
    for (const upload of this.#open) {
      if (upload === asker || upload.ageMs(now) < GRACE_MS) continue;
      if (slowest === undefined || upload.pace(now) < slowest.pace(now)) slowest = upload;
    }
    // A body does not give way to one that is slower still.
    if (asker.ageMs(now) >= GRACE_MS && slowest !== undefined && asker.pace(now) <= slowest.pace(now)) return undefined;
    return slowest;
  }

  giveBack(upload: Upload, bytes: number): void {
    this.#held -= bytes;
    this.#open.delete(upload);
  }
}

/** One body on its way in. */
export class Upload {
  readonly #uploads: Uploads;
  readonly #beganAt: number;
  #received = 0;
  #held = 0;
  #over = false;
  #givenUp = false;

  constructor(uploads: Uploads, now: number) {
    this.#uploads = uploads;
    this.#beganAt = now;
  }

  /** It made room for others: its reader answers 408. */
  get givenUp(): boolean {
    return this.#givenUp;
  }

  ageMs(now: number): number {
    return now - this.#beganAt;
  }

  /** Bytes per millisecond since it began. */
  pace(now: number): number {
    return this.#received / Math.max(1, this.ageMs(now));
  }

  received(bytes: number): void {
    this.#received += bytes;
  }

  /** Holds `bytes` of memory in all. False where there is no room. */
  hold(bytes: number, now: number): boolean {
    if (this.#over || bytes <= this.#held) return true;
    if (!this.#uploads.take(this, bytes - this.#held, now)) return false;
    this.#held = bytes;
    return true;
  }

  giveUp(): void {
    this.#givenUp = true;
    this.end();
  }

  /** Idempotent. */
  end(): void {
    if (this.#over) return;
    this.#over = true;
    this.#uploads.giveBack(this, this.#held);
    this.#held = 0;
  }
}
