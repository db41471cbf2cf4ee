/** Files that a function's calls read: copied to this node once for each process, in a directory that the process reads. */
import { rmSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { makeFunctionDirectory, removeFunctionDirectory } from './function-directory.ts';

/** Maximum bytes of the files of one process. The files that were not read for the longest time are deleted first. */
const FILES_MAX_BYTES = 8 * 2 ** 30;

/** Copies a file of the gateway to a path. @throws Error if it has more bytes */
export type CopyFile = (id: string, path: string, mostBytes: number) => Promise<void>;

export class StagedFiles {
  readonly directory: string;
  readonly #mostBytes: number;
  /** Complete files by id, with their bytes. The file that was used last is the last one. */
  readonly #files = new Map<string, number>();

  /** @throws Error if the directory cannot be created */
  constructor(temporary: string, mostBytes = FILES_MAX_BYTES) {
    this.directory = makeFunctionDirectory(temporary);
    this.#mostBytes = mostBytes;
  }

  /** Makes these files readable for the next call. Calls of one process do not overlap. @throws Error of `copy` */
  async stage(ids: readonly string[], copy: CopyFile): Promise<void> {
    for (const id of ids) {
      const known = this.#files.get(id);
      if (known !== undefined) this.#use(id, known);
    }
    for (const id of ids) {
      if (this.#files.has(id)) continue;
      const path = join(this.directory, id);
      try {
        await copy(id, path, this.#mostBytes);
        this.#use(id, (await stat(path)).size);
      } catch (error) {
        rmSync(path, { force: true });
        throw error;
      }
      this.#makeRoom(ids);
    }
  }

  /** @param needed files of the next call, which stay @throws Error if they are too large together */
  #makeRoom(needed: readonly string[]): void {
    let bytes = [...this.#files.values()].reduce((sum, one) => sum + one, 0);
    for (const [id, size] of this.#files) {
      if (bytes <= this.#mostBytes) return;
      if (needed.includes(id)) continue;
      rmSync(join(this.directory, id), { force: true });
      this.#files.delete(id);
      bytes -= size;
    }
    if (bytes > this.#mostBytes)
      throw new Error(`the files of one call have ${bytes} bytes, and at most ${this.#mostBytes} are possible`);
  }

  #use(id: string, bytes: number): void {
    this.#files.delete(id);
    this.#files.set(id, bytes);
  }

  /** @returns why something remains */
  remove(): string | undefined {
    return removeFunctionDirectory(this.directory);
  }
}
