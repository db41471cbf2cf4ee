/**
 * The directory into which a function's process moves the files that its calls return. The process may put anything
 * there: links, pipes, devices, files that change while they are read.
 */
import { createHash } from 'node:crypto';
import { closeSync, constants, mkdirSync, openSync } from 'node:fs';
import { type FileHandle, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { isOutputName, OUTPUT_FILE_MAX_BYTES, type OutputFile } from '../../../shared/batch/function-files.ts';
import { errorText } from '../../../shared/text/error-text.ts';

/** A file of a call: its name in the directory, and the name that its owner gave it. */
export interface CallFile {
  path: string;
  name: string;
}

/** The file cannot be collected on any node. */
export class OutputRefusedError extends Error {
  constructor(why: string) {
    super(why);
    this.name = 'OutputRefusedError';
  }
}

/** An opened file. */
export interface CollectedFile extends OutputFile {
  /** Reads the bytes that were counted, from the start. */
  content(): Readable;
}

/** How long files of an ended process are still read. Then their lines run again. */
const CLOSE_MS = 10_000;

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

export class OutputFolder {
  readonly directory: string;
  readonly #mostBytes: number;
  /** The directory stays the same one if the process moves it away and puts a link in its place. */
  readonly #descriptor: number;
  /** What reads files of earlier calls. */
  #reading: Promise<void> = Promise.resolve();
  readonly #stop = new AbortController();

  /** @throws Error if the directory cannot be created */
  constructor(parent: string, mostBytes = OUTPUT_FILE_MAX_BYTES) {
    this.directory = join(parent, 'outputs');
    this.#mostBytes = mostBytes;
    mkdirSync(this.directory, { mode: 0o700 });
    this.#descriptor = openSync(this.directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  }

  /**
   * Lets `send` read a file, and deletes the file.
   * @throws OutputRefusedError; Error of `send`
   */
  async collect<T>({ path, name }: CallFile, send: (file: CollectedFile) => Promise<T>): Promise<T> {
    if (!isOutputName(name))
      throw new OutputRefusedError(
        `the name of a file must have at most 255 characters, and no directory or control character: ${JSON.stringify(name.slice(0, 64))}`,
      );
    const handle = await this.#open(path, name);
    try {
      const { bytes, sha256 } = await this.#measure(handle, name);
      const content = () => readerOf(handle, bytes);
      return await send({ name, bytes, sha256, content });
    } finally {
      await handle.close().catch(() => {});
      await this.discard([{ path, name }]);
    }
  }

  /** Aborts when the files cannot be read any more. */
  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Runs `read` after all earlier readers. */
  whileReading(read: () => Promise<void>): Promise<void> {
    this.#reading = this.#reading.catch(() => {}).then(read);
    return this.#reading;
  }

  /** Resolves when the files of earlier calls were read. Never rejects. */
  async idle(): Promise<void> {
    await this.#reading.catch(() => {});
  }

  /** Deletes files of a call. */
  async discard(files: readonly CallFile[]): Promise<void> {
    // The number of a closed descriptor may name another directory.
    if (this.#stop.signal.aborted) return;
    for (const { path } of files) await rm(this.#pathOf(path), { force: true }).catch(() => {});
  }

  /** Waits a while for files that are being read. Idempotent; never rejects. */
  async close(): Promise<void> {
    if (this.#stop.signal.aborted) return;
    const wait = new AbortController();
    await Promise.race([this.idle(), sleep(CLOSE_MS, undefined, { signal: wait.signal }).catch(() => {})]);
    wait.abort();
    if (this.#stop.signal.aborted) return;
    this.#stop.abort();
    await this.idle();
    closeSync(this.#descriptor);
  }

  /** A link is not followed, and opening a pipe does not wait for its other end. */
  async #open(path: string, name: string): Promise<FileHandle> {
    if (this.#stop.signal.aborted) throw new Error('the process of the function has ended');
    try {
      return await open(this.#pathOf(path), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    } catch (error) {
      throw new OutputRefusedError(`the file ${name} cannot be read: ${errorText(error)}`);
    }
  }

  async #measure(handle: FileHandle, name: string): Promise<{ bytes: number; sha256: string }> {
    const stat = await handle.stat();
    if (!stat.isFile()) throw new OutputRefusedError(`${name} is not a regular file`);
    const { size: bytes } = stat;
    if (bytes > this.#mostBytes)
      throw new OutputRefusedError(`the file ${name} has ${bytes} bytes, and at most ${this.#mostBytes} are possible`);
    const hash = createHash('sha256');
    let read = 0;
    for await (const piece of readerOf(handle, bytes)) {
      hash.update(piece as Buffer);
      read += (piece as Buffer).length;
    }
    if (read !== bytes) throw new OutputRefusedError(`the file ${name} changed while it was read`);
    return { bytes, sha256: hash.digest('hex') };
  }

  #pathOf(path: string): string {
    const parent = process.platform === 'linux' ? `/proc/self/fd/${this.#descriptor}` : this.directory;
    return join(parent, path);
  }
}

/** Reads this number of bytes from the start. The file stays open. */
function readerOf(handle: FileHandle, bytes: number): Readable {
  if (bytes === 0) return Readable.from([]);
  return handle.createReadStream({ start: 0, end: bytes - 1, autoClose: false });
}
