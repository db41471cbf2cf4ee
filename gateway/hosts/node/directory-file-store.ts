import { createReadStream } from 'node:fs';
import { type FileHandle, mkdir, open, opendir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type FileStore, FileStoreError, FileTooLarge, type StoredFile } from '../../files/file-store.ts';

/**
 * Matches ids that the gateway generates. An id of this form is a file name without a path, so the file is in the
 * directory.
 */
const ID = /^file-[0-9a-z]{24}$/;
const UNFINISHED = '.part';
/** Bytes of one read of a whole file: four times Node's default. */
const READ_BYTES = 256 * 1024;
/**
 * Bytes of one write. A socket provides 64 KiB at a time, and each write is a task of the thread pool, which costs more
 * than a copy.
 */
const WRITE_BYTES = 1024 * 1024;
const FULL: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT']);

/**
 * Stores files in one directory, readable only by the gateway's user. A file gets its name when it is complete and
 * synced to disk.
 */
export class DirectoryFileStore implements FileStore {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async put(id: string, content: AsyncIterable<Uint8Array>, maxBytes: number): Promise<{ bytes: number }> {
    const path = this.#pathOf(id);
    const unfinished = `${path}${UNFINISHED}`;
    try {
      await storing(() => mkdir(this.#directory, { recursive: true, mode: 0o700 }));
      const bytes = await this.#write(unfinished, content, maxBytes);
      await storing(() => rename(unfinished, path));
      return { bytes };
    } catch (error) {
      await rm(unfinished, { force: true }).catch(() => {});
      throw error;
    }
  }

  async #write(path: string, content: AsyncIterable<Uint8Array>, maxBytes: number): Promise<number> {
    const handle = await storing(() => open(path, 'w', 0o600));
    try {
      const writer = new BlockWriter(handle);
      let bytes = 0;
      for await (const piece of content) {
        bytes += piece.length;
        if (bytes > maxBytes) throw new FileTooLarge(maxBytes);
        await writer.write(piece);
      }
      await writer.end();
      await storing(() => handle.sync());
      return bytes;
    } finally {
      await handle.close();
    }
  }

  async read(id: string, range?: { offset: number; length: number }): Promise<AsyncIterable<Uint8Array> | undefined> {
    const path = this.#pathOf(id);
    const found = await storing(() => stat(path).catch(missing));
    if (found === undefined) return undefined;
    if (range === undefined) return createReadStream(path, { highWaterMark: READ_BYTES });
    if (range.length === 0) return nothing();
    const end = range.offset + range.length;
    if (found.size < end)
      throw new FileStoreError('damaged', `the file store has ${found.size} bytes of a file that should have ${end}`);
    return createReadStream(path, { start: range.offset, end: end - 1, highWaterMark: READ_BYTES });
  }

  async delete(id: string): Promise<void> {
    await storing(() => rm(this.#pathOf(id), { force: true }));
  }

  async *list(): AsyncGenerator<StoredFile> {
    for await (const { name, modifiedMs } of this.#entries()) if (ID.test(name)) yield { id: name, modifiedMs };
  }

  async dropUnfinished(beforeMs: number): Promise<number> {
    let dropped = 0;
    for await (const { name, modifiedMs } of this.#entries()) {
      if (!name.endsWith(UNFINISHED) || modifiedMs >= beforeMs) continue;
      await storing(() => rm(join(this.#directory, name), { force: true }));
      dropped += 1;
    }
    return dropped;
  }

  async *#entries(): AsyncGenerator<{ name: string; modifiedMs: number }> {
    const directory = await storing(() => opendir(this.#directory).catch(missing));
    if (directory === undefined) return;
    for await (const { name } of directory) {
      const found = await storing(() => stat(join(this.#directory, name)).catch(missing));
      if (found?.isFile() === true) yield { name, modifiedMs: found.mtimeMs };
    }
  }

  #pathOf(id: string): string {
    if (!ID.test(id)) throw new TypeError('not a file id');
    return join(this.#directory, id);
  }
}

/** Writes whole blocks: one is written while the next one fills. */
class BlockWriter {
  readonly #handle: FileHandle;
  #filling = Buffer.allocUnsafeSlow(WRITE_BYTES);
  #written = Buffer.allocUnsafeSlow(WRITE_BYTES);
  #filled = 0;
  #writing: Promise<void> = Promise.resolve();

  constructor(handle: FileHandle) {
    this.#handle = handle;
  }

  /** Copies a piece to the current block. @throws FileStoreError of this block or the previous one */
  async write(piece: Uint8Array): Promise<void> {
    for (let at = 0; at < piece.length; ) {
      const taken = piece.subarray(at, at + WRITE_BYTES - this.#filled);
      this.#filling.set(taken, this.#filled);
      this.#filled += taken.length;
      at += taken.length;
      if (this.#filled === WRITE_BYTES) await this.#flush();
    }
  }

  async end(): Promise<void> {
    await this.#flush();
    await this.#writing;
  }

  async #flush(): Promise<void> {
    await this.#writing;
    const block = this.#filling.subarray(0, this.#filled);
    // `write` is not used: on a nearly full disk it writes part of the block without an error.
    this.#writing = storing(() => this.#handle.writeFile(block));
    // The error of this write is thrown with the next block.
    this.#writing.catch(() => {});
    [this.#filling, this.#written] = [this.#written, this.#filling];
    this.#filled = 0;
  }
}

async function* nothing(): AsyncGenerator<Uint8Array> {}

function missing(error: NodeJS.ErrnoException): undefined {
  if (error.code === 'ENOENT') return undefined;
  throw error;
}

async function storing<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (cause) {
    const code = String((cause as NodeJS.ErrnoException).code);
    if (FULL.has(code)) throw new FileStoreError('full', 'the file store is full', { cause });
    throw new FileStoreError('unavailable', `the file store cannot be used: ${code}`, { cause });
  }
}
