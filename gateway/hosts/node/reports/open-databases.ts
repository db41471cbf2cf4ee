/** Keeps databases open for a while, because a report reads an hour page by page. */
import { statSync } from 'node:fs';
import type { Database } from '../sqlite.ts';

/** Maximum open databases. Concurrent reports read different hours. */
const OPEN_MAX = 16;
/**
 * A database that is not used for this time is closed. While it is open, its write-ahead log cannot be truncated, and
 * the disk space of a deleted database is not freed.
 */
const IDLE_MS = 2_000;

interface OpenDatabase {
  database: Database;
  /**
   * Inode of the file. An object that ends deletes its file; the next object of that name has a file with another
   * inode.
   */
  inode: bigint | undefined;
  timer: NodeJS.Timeout;
}

export class OpenDatabases {
  readonly #make: (path: string) => Database;
  readonly #open = new Map<string, OpenDatabase>();

  constructor(make: (path: string) => Database) {
    this.#make = make;
  }

  open(path: string): Database {
    const inode = inodeOf(path);
    const known = this.#open.get(path);
    if (known !== undefined && known.inode === inode) {
      known.timer.refresh();
      return known.database;
    }
    this.#close(path);
    const [oldest] = this.#open.keys();
    if (this.#open.size >= OPEN_MAX && oldest !== undefined) this.#close(oldest);
    const database = this.#make(path);
    const timer = setTimeout(() => this.#close(path), IDLE_MS);
    this.#open.set(path, { database, inode, timer });
    return database;
  }

  close(): void {
    for (const path of this.#open.keys()) this.#close(path);
  }

  #close(path: string): void {
    const file = this.#open.get(path);
    if (file === undefined) return;
    clearTimeout(file.timer);
    file.database.close();
    this.#open.delete(path);
  }
}

function inodeOf(path: string): bigint | undefined {
  return statSync(path, { bigint: true, throwIfNoEntry: false })?.ino;
}
