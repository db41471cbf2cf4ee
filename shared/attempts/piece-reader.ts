/**
 * Sizes of one read. READ_MIN_BYTES is the most that workerd's default reader returns. The maximum is used while more
 * data is waiting, because each read costs one turn of the event loop.
 */
const READ_MIN_BYTES = 4 * 1024;
const MOST_BYTES = 256 * 1024;

/**
 * Reads a runtime stream (the body of a request or a response) in pieces that grow with the available data. In workerd
 * the default reader returns at most 4 KiB at a time, and each read costs the same. Pieces of a stream that our own
 * code produces are returned unchanged.
 */
export class PieceReader {
  readonly #reader: ReadableStreamBYOBReader | ReadableStreamDefaultReader<Uint8Array>;
  #size = READ_MIN_BYTES;

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#reader = fillingReader(stream) ?? stream.getReader();
  }

  /** Returns the next bytes; undefined at the end. Rejects if the stream breaks. */
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

  /** Releases the stream for another reader. */
  release(): void {
    this.#reader.releaseLock();
  }
}

/** A reader that fills a given buffer; undefined if the stream is not a byte stream. */
function fillingReader(stream: ReadableStream<Uint8Array>): ReadableStreamBYOBReader | undefined {
  try {
    return stream.getReader({ mode: 'byob' });
  } catch {
    return undefined;
  }
}
