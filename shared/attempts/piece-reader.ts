/**
 * The minimum is what workerd's own reader returns at most. The maximum is what we request if more data is waiting.
 * Each read costs a turn of the event loop.
 */
const READ_MIN_BYTES = 4 * 1024;
const MOST_BYTES = 256 * 1024;

/**
 * Reads a runtime stream (the body of a request or a response) in pieces that grow with the available data. In workerd
 * the default reader returns 4 KiB at a time, and every read costs the same. Pieces of a stream that our own code feeds
 * are taken as they are.
 */
export class PieceReader {
  readonly #reader: ReadableStreamBYOBReader | ReadableStreamDefaultReader<Uint8Array>;
  #size = READ_MIN_BYTES;

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = fillingReader(stream) ?? stream.getReader();
  }

  /** The next bytes, undefined at the end. Rejects if the stream breaks. */
  async read(): Promise<Uint8Array | undefined> {
    const { done, value } = await this.#reader.read(new Uint8Array(this.#size));
    if (done || value === undefined) return undefined;
    if (value.length === this.#size) this.#size = Math.min(this.#size * 4, MOST_BYTES);
    else if (value.length <= this.#size / 8) this.#size = Math.max(this.#size / 4, READ_MIN_BYTES);
    return value;
  }

  cancel(): Promise<void> {
    return this.#reader.cancel();
  }

  /** Another reader may continue. */
  release(): void {
    this.#reader.releaseLock();
  }
}

/** Undefined if the stream is not a byte stream; then its pieces are made elsewhere. */
function fillingReader(stream: ReadableStream<Uint8Array>): ReadableStreamBYOBReader | undefined {
  try {
    return stream.getReader({ mode: 'byob' });
  } catch {
    return undefined;
  }
}
