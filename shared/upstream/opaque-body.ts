import { ApiError } from '../openai/errors.ts';

interface ChunkReader {
  /** The next bytes, undefined at the end. @throws ApiError where no more comes */
  read(): Promise<Uint8Array | undefined>;
  /** Gives up the rest, and the client's connection with it. */
  cancel(): Promise<void>;
}

/** As much of a streaming body as may be pulled before an attempt can no longer be repeated. */
const PREFIX_MAX_BYTES = 1024 * 1024;

/**
 * A body that streams through. What was pulled of it is remembered up to 1 MiB, so that an attempt that failed early can be
 * repeated; from then on the body belongs to the node that pulls it.
 */
export class OpaqueBody {
  readonly #reader: ChunkReader;
  #prefix: Uint8Array[] | undefined = [];
  #prefixBytes = 0;
  #ended = false;
  #reading: Promise<Uint8Array | undefined> | undefined;
  #failure: ApiError | undefined;
  #released = false;

  constructor(reader: ChunkReader) {
    this.#reader = reader;
  }

  /** Another attempt can have the whole body. */
  get replayable(): boolean {
    return this.#prefix !== undefined && this.#failure === undefined;
  }

  /** Why its client sent no more of it. */
  get failure(): ApiError | undefined {
    return this.#failure;
  }

  /** The answer goes out, which a connection that was given up before would not carry. */
  release(): void {
    this.#released = true;
    if (this.#failure !== undefined) void this.#reader.cancel().catch(() => {});
  }

  /** The body from its start, for one attempt; the stream of the attempt before must be out of use. */
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

  /** A read that an abandoned attempt left behind is taken over, not lost. */
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
    if (this.#prefixBytes > PREFIX_MAX_BYTES) this.#prefix = undefined;
    this.#prefix?.push(value);
    return value;
  }
  #fail(error: unknown): never {
    if (error instanceof ApiError) this.#failure = error;
    if (this.#released) this.release();
    throw error;
  }
}
