/** The lines of a batch that wait for results of other batches, and the texts of those that got them. */
import type { BatchProgress, WaitingLine } from '../../../shared/batch/line-references.ts';
import { isReady } from '../../../shared/batch/line-references.ts';
import { concat } from '../../../shared/collections/concat.ts';
import type { ObjectStorage } from '../../platform/object-context.ts';

/** Maximum bytes of one row: Cloudflare allows two million. */
const ROW_BYTES = 1_000_000;

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS waiting (line INTEGER PRIMARY KEY, row TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS resolved (chunk INTEGER NOT NULL, number INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (chunk, number)) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS result_file (id TEXT PRIMARY KEY) WITHOUT ROWID;
`;

export class WaitingLines {
  readonly #storage: ObjectStorage;
  /** Cached rows, in the order of the input. */
  #lines: WaitingLine[] | undefined;

  constructor(storage: ObjectStorage) {
    this.#storage = storage;
    storage.sql.exec(SCHEMA);
  }

  get all(): readonly WaitingLine[] {
    this.#lines ??= this.#storage.sql
      .exec<{ row: string }>('SELECT row FROM waiting ORDER BY line')
      .toArray()
      .map(({ row }) => JSON.parse(row) as WaitingLine);
    return this.#lines;
  }

  add(lines: readonly WaitingLine[]): void {
    for (const one of lines)
      this.#storage.sql.exec('INSERT OR REPLACE INTO waiting (line, row) VALUES (?, ?)', one.line, JSON.stringify(one));
    this.#lines = undefined;
  }

  /** The first lines that have all their results, at most `most`. */
  ready(progress: readonly (BatchProgress | null)[], most: number): WaitingLine[] {
    const found: WaitingLine[] = [];
    for (const one of this.all) {
      if (found.length === most) break;
      if (isReady(one, progress)) found.push(one);
    }
    return found;
  }

  remove(lines: readonly WaitingLine[]): void {
    const gone = new Set(lines.map(({ line }) => line));
    for (const line of gone) this.#storage.sql.exec('DELETE FROM waiting WHERE line = ?', line);
    this.#lines = this.all.filter(({ line }) => !gone.has(line));
  }

  /** Stores the text of a chunk after its lines got their results. */
  setText(chunk: number, text: Uint8Array): void {
    for (let at = 0; at < text.length; at += ROW_BYTES)
      this.#storage.sql.exec(
        'INSERT OR REPLACE INTO resolved (chunk, number, bytes) VALUES (?, ?, ?)',
        chunk,
        at / ROW_BYTES,
        text.slice(at, at + ROW_BYTES).buffer,
      );
  }

  text(chunk: number): Uint8Array {
    const query = 'SELECT bytes FROM resolved WHERE chunk = ? ORDER BY number';
    const pieces = this.#storage.sql.exec<{ bytes: ArrayBuffer }>(query, chunk).toArray();
    return concat(pieces.map(({ bytes }) => new Uint8Array(bytes)));
  }

  /** Lets nodes that run lines of the batch read files of results. */
  addFiles(ids: readonly string[]): void {
    for (const id of ids) this.#storage.sql.exec('INSERT OR IGNORE INTO result_file (id) VALUES (?)', id);
  }

  hasFile(id: string): boolean {
    return this.#storage.sql.exec('SELECT id FROM result_file WHERE id = ?', id).toArray().length > 0;
  }

  /** Number of files that lines got with results. */
  get fileCount(): number {
    return this.#storage.sql.exec<{ n: number }>('SELECT count(*) AS n FROM result_file').one().n;
  }

  /** Bytes of all stored texts. */
  get textBytes(): number {
    const query = 'SELECT coalesce(sum(length(bytes)), 0) AS bytes FROM resolved';
    return this.#storage.sql.exec<{ bytes: number }>(query).one().bytes;
  }

  forget(): void {
    this.#storage.sql.exec('DELETE FROM waiting');
    this.#storage.sql.exec('DELETE FROM resolved');
    this.#storage.sql.exec('DELETE FROM result_file');
    this.#lines = undefined;
  }
}
