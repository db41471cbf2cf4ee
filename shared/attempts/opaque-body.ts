import { ApiError } from '../openai/api-errors.ts';

interface ChunkReader {
  /** Returns the next bytes; undefined at the end. @throws ApiError if the body breaks off */
  read(): Promise<Uint8Array | undefined>;
  /** Discards the rest of the body, and with it the client's connection. */
  cancel(): Promise<void>;
}

/**
 * Maximum number of bytes of a streaming body that are kept for a retry. If the body is longer, the attempt cannot be
 * retried after this many bytes.
 */
const PREFIX_MAX_BYTES = 1024 * 1024;

/**
 * A body that is sent on as it arrives, without being parsed. Its first 1 MiB is kept, so that an attempt that fails
 * early can be retried. When more has arrived, only the current attempt can have the body.
 */
export class OpaqueBody {
  readonly #reader: ChunkReader;
  readonly #prefixMaxBytes: number;
  #prefix: Uint8Array[] | undefined = [];
  #prefixBytes = 0;
  #ended = false;
  #reading: Promise<Uint8Array | undefined> | undefined;
  #failure: ApiError | undefined;
  #released = false;

  constructor(reader: ChunkReader, prefixMaxBytes = PREFIX_MAX_BYTES) {
    this.#reader = reader;
    this.#prefixMaxBytes = prefixMaxBytes;
  }

  /** True if another attempt can send the whole body. */
  get replayable(): boolean {
    return this.#prefix !== undefined && this.#failure === undefined;
  }

  /** The reason why the client sent only a part of the body. */
  get failure(): ApiError | undefined {
    return this.#failure;
  }

  /**
   * Call when the client's response begins, and the body is no longer needed. From then on the rest of a body that
   * broke off is discarded.
   */
  release(): void {
    this.#released = true;
    if (this.#failure !== undefined) this.#reader.cancel().catch(() => {});
  }

  /** Returns the body from its start, for one attempt. The stream of the previous attempt must not be used any more. */
  open(): ReadableStream<Uint8Array> {
    let at = 0;
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          const known = this.#prefix?.[at++];
          const chunk = known ?? (await this.#next());
          if (chunk === undefined) controller.close();
          else controller.enqueue(chunk);
        },
      },
      { highWaterMark: 0 },
    );
  }

  /** Reads the next bytes. Takes over a read that an abandoned attempt left pending, so that its bytes are not lost. */
  async #next(): Promise<Uint8Array | undefined> {
    if (this.#ended) return undefined;
    this.#reading ??= this.#read();
    const chunk = await this.#reading;
    this.#reading = undefined;
    return chunk;
  }

  async #read(): Promise<Uint8Array | undefined> {
    const value = await this.#reader.read().catch((error: unknown) => this.#fail(error));
    if (value === undefined) {
      this.#ended = true;
      return undefined;
    }
    this.#prefixBytes += value.length;
    if (this.#prefixBytes > this.#prefixMaxBytes) this.#prefix = undefined;
    this.#prefix?.push(value);
    return value;
  }
  #fail(error: unknown): never {
    if (error instanceof ApiError) this.#failure = error;
    if (this.#released) this.release();
    throw error;
  }
}
