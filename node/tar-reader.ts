/** Reads tar archives with the parser of the `tar` package, one entry after another. */
import { PassThrough, type Readable } from 'node:stream';
import { Parser, type ReadEntry } from 'tar';
import { errorText } from '../shared/text/error-text.ts';

/** The archive is damaged or unsupported. It is not a fault of the disk or of the caller. */
export class TarError extends Error {
  override readonly name = 'TarError';
}

const BLOCK_BYTES = 512;
/** First bytes of gzip and zstd. The parser would decompress such input without a limit. */
const PACKED = [Buffer.from([0x1f, 0x8b]), Buffer.from([0x28, 0xb5, 0x2f, 0xfd])];

/** Maximum size of a metadata entry, which holds a path that is too long for a header. */
const META_MAX_BYTES = 64 * 1024;

export class TarReader {
  readonly #parser = new Parser({ strict: true, maxMetaEntrySize: META_MAX_BYTES });
  /**
   * Resolves when `take` has finished for all entries that the parser has begun: for the current entry, and for earlier
   * entries of the same chunk.
   */
  #turn: Promise<void> = Promise.resolve();
  /**
   * Resolves when `take` has finished for all entries except the last one. The last entry's data may continue in the
   * next chunk.
   */
  #before: Promise<void> = Promise.resolve();
  #body: Readable | undefined;
  /** The first bytes of the archive, until they suffice to detect its format; then undefined. */
  #head: Buffer | undefined = Buffer.alloc(0);
  #failure: unknown;
  #ended = false;
  #eof = false;
  #wake: () => void = () => {};

  /** @param take must read the body to its end */
  constructor(take: (entry: ReadEntry, body: Readable) => Promise<void>) {
    this.#parser.on('error', (cause: unknown) =>
      this.#fail(new TarError(`the archive is damaged or cut off: ${errorText(cause)}`, { cause })),
    );
    this.#parser.on('ignoredEntry', ({ type }: ReadEntry) =>
      this.#fail(new TarError(`the archive has an entry of the unsupported type ${type}`)),
    );
    this.#parser.on('drain', () => this.#wake());
    this.#parser.on('eof', () => {
      this.#eof = true;
    });
    this.#parser.on('end', () => {
      this.#ended = true;
      this.#wake();
    });
    this.#parser.on('entry', (entry: ReadEntry) => {
      const body = new PassThrough();
      body.on('error', () => {}); // The body's reader gets the error.
      entry.pipe(body);
      this.#before = this.#turn;
      this.#turn = this.#turn.then(async () => {
        if (this.#failure !== undefined) return;
        this.#body = body;
        await take(entry, body).catch((error: unknown) => this.#fail(error));
      });
    });
  }

  #fail(error: unknown): void {
    this.#failure ??= error;
    this.#body?.destroy(new Error('the rest of the archive is not read'));
    this.#wake();
  }

  #throw(): void {
    if (this.#failure !== undefined) throw this.#failure;
  }

  #waiting(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  /**
   * Parses the next bytes of the archive.
   *
   * @throws errors of the parser, and of `take`
   */
  async push(chunk: Buffer): Promise<void> {
    this.#throw();
    if (this.#head === undefined) return this.#write(chunk);
    const head = Buffer.concat([this.#head, chunk]);
    this.#head = head.length < BLOCK_BYTES ? head : undefined;
    if (this.#head !== undefined) return;
    if (PACKED.some((magic) => head.subarray(0, magic.length).equals(magic)))
      throw new TarError('the archive is compressed twice: pack it once, as .tar.zst or .tar.gz');
    await this.#write(head);
  }

  async #write(chunk: Buffer): Promise<void> {
    // Drop bytes after the end of the archive, because the parser would keep them in memory.
    if (this.#eof) return;
    // If `write` failed, no drain event follows.
    if (!this.#parser.write(chunk) && this.#failure === undefined) await this.#waiting();
    if (this.#failure === undefined) await this.#before;
    this.#throw();
  }

  async end(): Promise<void> {
    this.#parser.end();
    if (!this.#ended && this.#failure === undefined) await this.#waiting();
    if (this.#failure === undefined) await this.#turn;
    this.#throw();
  }

  /** Ends the entry that is being read, if there is one. Never rejects. */
  async close(): Promise<void> {
    this.#fail(new Error('closed'));
    await this.#turn;
  }
}
