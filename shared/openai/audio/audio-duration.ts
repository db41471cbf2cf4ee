/** Measures how long the sound of an audio file is, while the file passes. Uses bounded memory. */
import {
  type AudioFormat,
  audioFormatOf,
  HEADER_MAX_BYTES,
  MAGIC_BYTES,
  UNREAD_BYTES_PER_MS,
} from './audio-formats.ts';

/** Raw samples as OpenAI's speech has them: 24 kHz, 16 bits, one channel. */
const RAW_HZ = 24_000;
const RAW_SAMPLE_BYTES = 2;

export class AudioDuration {
  readonly #rawBytesPerMs: number | undefined;
  #format: AudioFormat | undefined;
  #isUnread = false;
  #total = 0;
  /** Offset of the held header. */
  #at = 0;
  #skip = 0;
  readonly #held = new Uint8Array(HEADER_MAX_BYTES);
  #have = 0;

  /** @param contentType `audio/pcm` and `audio/L16` are raw samples. All other formats are recognized by their bytes. */
  constructor(contentType = '') {
    if (!/^\s*audio\/(?:pcm|l16)\s*(?:;|$)/i.test(contentType)) return;
    const hz = Number(/;\s*rate\s*=\s*"?(\d{4,6})\b/i.exec(contentType)?.[1] ?? RAW_HZ);
    this.#rawBytesPerMs = (hz * RAW_SAMPLE_BYTES) / 1_000;
  }

  push(chunk: Uint8Array): void {
    this.#total += chunk.length;
    let from = 0;
    while (!this.#isUnread && this.#rawBytesPerMs === undefined) {
      const skipped = Math.min(this.#skip, chunk.length - from);
      from += skipped;
      this.#skip -= skipped;
      const size = this.#format?.size ?? MAGIC_BYTES;
      const wanted = Math.max(0, Math.min(size - this.#have, chunk.length - from));
      this.#held.set(chunk.subarray(from, from + wanted), this.#have);
      this.#have += wanted;
      from += wanted;
      if (this.#skip > 0 || this.#have < size) return;
      this.#read();
    }
  }

  #read(): void {
    if (this.#format === undefined) {
      this.#format = audioFormatOf(this.#held);
      this.#isUnread = this.#format === undefined;
      return;
    }
    const advance = this.#format.read(this.#held, this.#at);
    this.#at += advance;
    this.#skip = Math.max(0, advance - this.#have);
    this.#held.copyWithin(0, advance, this.#have);
    this.#have = Math.max(0, this.#have - advance);
  }

  /** Milliseconds of the bytes so far. */
  get ms(): number {
    if (this.#rawBytesPerMs !== undefined) return Math.round(this.#total / this.#rawBytesPerMs);
    const ms = Math.round(this.#format?.ms(this.#total) ?? this.#total / UNREAD_BYTES_PER_MS);
    // A header can claim any length.
    return Math.min(Number.MAX_SAFE_INTEGER, ms);
  }
}
