import type { Readable } from 'node:stream';

/** Memory for the bodies of several requests. */
interface BodyMemory {
  /** Takes memory; false: there is not enough. */
  hold(bytes: number): boolean;
  giveBack(bytes: number): void;
}

interface HeldBodyOptions {
  maxBytes: number;
  memory: BodyMemory;
  /** Called once if the body does not fit. Then `read` resolves with undefined. */
  onRefused(why: 'too long' | 'no memory'): void;
}

/** The whole body of a request, in memory, because it is changed before an engine gets it. */
export class HeldBody {
  readonly #options: HeldBodyOptions;
  #content: Readable | undefined;
  #bytes = 0;
  #ended = false;

  constructor(options: HeldBodyOptions) {
    this.#options = options;
  }

  /** Reads the whole body. Undefined if it ended early, was refused, or `end` was called. Call once. */
  async read(content: Buffer | Readable): Promise<Buffer | undefined> {
    await null; // no event may fire before the caller has received its call
    if (this.#ended) return undefined;
    if (Buffer.isBuffer(content)) return this.#hold(content.length) ? content : undefined;
    this.#content = content;
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of content) {
        if (this.#ended || !Buffer.isBuffer(chunk) || !this.#hold(chunk.length)) return undefined;
        chunks.push(chunk);
      }
    } catch {
      return undefined; // the request was abandoned; its attempt has the reason
    }
    return this.#ended ? undefined : Buffer.concat(chunks);
  }

  #hold(bytes: number): boolean {
    const { maxBytes, memory, onRefused } = this.#options;
    const isTooLong = this.#bytes + bytes > maxBytes;
    if (isTooLong || !memory.hold(bytes)) {
      onRefused(isTooLong ? 'too long' : 'no memory');
      return false;
    }
    this.#bytes += bytes;
    return true;
  }

  /** Gives the memory back. Idempotent. */
  giveBack(): void {
    this.#options.memory.giveBack(this.#bytes);
    this.#bytes = 0;
  }

  /** Ends the read, and gives the memory back. Idempotent. */
  end(): void {
    this.#ended = true;
    this.#content?.destroy();
    this.giveBack();
  }
}
