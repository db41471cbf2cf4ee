/** What workerd's own reader hands out at most, and what one read of ours asks for where bytes stand waiting: each costs a turn of its own. */
const LEAST_BYTES = 4 * 1024;
const MOST_BYTES = 256 * 1024;

/**
 * Reads a stream of the runtime's (a body of a request or a response) in pieces that grow with what is there: in workerd its
 * ordinary reader gives 4 KiB at a time, and each read costs the same, however little it brings. A stream that some code of ours
 * feeds has pieces of its own: they are taken as they are.
 */
export class PieceReader {
  readonly #reader: ReadableStreamBYOBReader | ReadableStreamDefaultReader<Uint8Array>;
  #size = LEAST_BYTES;

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = fillingReader(stream) ?? stream.getReader();
  }

  /** The next bytes, undefined at the end. Rejects where the stream breaks. */
  async read(): Promise<Uint8Array | undefined> {
    const { done, value } = await this.#reader.read(new Uint8Array(this.#size));
    if (done || value === undefined) return undefined;
    if (value.length === this.#size) this.#size = Math.min(this.#size * 4, MOST_BYTES);
    else if (value.length <= this.#size / 8) this.#size = Math.max(this.#size / 4, LEAST_BYTES);
    return value;
  }

  cancel(): Promise<void> {
    return this.#reader.cancel();
  }

  /** Another reader may go on. */
  release(): void {
    this.#reader.releaseLock();
  }
}

/** Undefined where the stream is none of bytes: its pieces are made elsewhere. */
function fillingReader(stream: ReadableStream<Uint8Array>): ReadableStreamBYOBReader | undefined {
  try {
    return stream.getReader({ mode: 'byob' });
  } catch {
    return undefined;
  }
}
