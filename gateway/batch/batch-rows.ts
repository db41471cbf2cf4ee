/** The storage of one batch: its chunks, the results of their lines, and its state. */

import type { LineRequirements } from '../../shared/batch/batch-input-check.ts';
import type { ChunkState } from '../../shared/batch/lease-ledger.ts';
import type { LineResult } from '../../shared/batch/line-results.ts';
import { concat } from '../../shared/collections/concat.ts';
import type { ObjectStorage } from '../platform/object-context.ts';
import type { BatchFunction, BatchSpec, StoredBatchState } from './batch-spec.ts';

/**
 * Maximum bytes of one row: Cloudflare allows two million. One commit may be longer, because each response is JSON
 * inside JSON.
 */
const ROW_BYTES = 1_000_000;

/** A commit: its number among the commits of all chunks, and its number within its chunk. */
export interface Arrival extends Record<string, number> {
  number: number;
  chunk: number;
  seq: number;
}

/**
 * Table `arrival` has the commits of all chunks in their order, for readers of a running batch.
 *
 * If the results of a commit are longer than ROW_BYTES, table `piece` has them in parts, and the column `results` is
 * ''.
 */
const SCHEMA = `
  CREATE TABLE IF NOT EXISTS arrival (number INTEGER PRIMARY KEY, chunk INTEGER NOT NULL, seq INTEGER NOT NULL);
  CREATE TABLE IF NOT EXISTS chunk (id INTEGER PRIMARY KEY, row TEXT NOT NULL, done BLOB NOT NULL);
  CREATE TABLE IF NOT EXISTS result (chunk INTEGER NOT NULL, seq INTEGER NOT NULL, results TEXT NOT NULL, PRIMARY KEY (chunk, seq)) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS piece (chunk INTEGER NOT NULL, seq INTEGER NOT NULL, number INTEGER NOT NULL, bytes BLOB NOT NULL,
    PRIMARY KEY (chunk, seq, number)) WITHOUT ROWID;
`;

export class BatchRows {
  readonly #storage: ObjectStorage;

  constructor(storage: ObjectStorage) {
    this.#storage = storage;
    storage.sql.exec(SCHEMA);
  }

  get spec(): BatchSpec | undefined {
    return this.#storage.kv.get<BatchSpec>('spec');
  }

  set spec(spec: BatchSpec | undefined) {
    this.#storage.kv.put('spec', spec);
  }

  get state(): StoredBatchState | undefined {
    return this.#storage.kv.get<StoredBatchState>('state');
  }

  set state(state: StoredBatchState | undefined) {
    this.#storage.kv.put('state', state);
  }

  get demands(): LineRequirements[] {
    return this.#storage.kv.get<LineRequirements[]>('demands') ?? [];
  }

  set demands(demands: LineRequirements[]) {
    this.#storage.kv.put('demands', demands);
  }

  /** The batch's function, if it runs one. Its code is stored here, so that its file may be deleted. */
  get function(): BatchFunction | undefined {
    return this.#storage.kv.get<BatchFunction>('function');
  }

  set function(code: BatchFunction | undefined) {
    this.#storage.kv.put('function', code);
  }

  /** The last output of the batch's function. */
  get log(): string {
    return this.#storage.kv.get<string>('log') ?? '';
  }

  set log(text: string) {
    this.#storage.kv.put('log', text);
  }

  chunks(): ChunkState[] {
    const rows = this.#storage.sql.exec<{ row: string; done: ArrayBuffer }>('SELECT row, done FROM chunk ORDER BY id');
    return rows
      .toArray()
      .map(({ row, done }) => ({ ...(JSON.parse(row) as Omit<ChunkState, 'done'>), done: new Uint8Array(done) }));
  }

  store(chunks: Iterable<ChunkState>): void {
    for (const { done, ...row } of chunks)
      this.#storage.sql.exec(
        'INSERT INTO chunk (id, row, done) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET row = excluded.row, done = excluded.done',
        row.id,
        JSON.stringify(row),
        done.slice().buffer,
      );
  }

  /** Stores the results of one commit. @returns the number of this commit within the chunk */
  addResults(chunk: number, results: readonly LineResult[]): number {
    const query =
      'INSERT INTO result (chunk, seq, results) SELECT ?1, coalesce(max(seq), 0) + 1, ?2 FROM result WHERE chunk = ?1 RETURNING seq';
    const text = JSON.stringify(results);
    const bytes = new TextEncoder().encode(text);
    const fits = bytes.length <= ROW_BYTES;
    const { seq } = this.#storage.sql.exec<{ seq: number }>(query, chunk, fits ? text : '').one();
    this.#storage.sql.exec('INSERT INTO arrival (chunk, seq) VALUES (?, ?)', chunk, seq);
    for (let at = 0; !fits && at < bytes.length; at += ROW_BYTES)
      this.#storage.sql.exec(
        'INSERT INTO piece (chunk, seq, number, bytes) VALUES (?, ?, ?, ?)',
        chunk,
        seq,
        at / ROW_BYTES,
        bytes.slice(at, at + ROW_BYTES).buffer,
      );
    return seq;
  }

  /** Returns the results of one commit. */
  resultsOf(chunk: number, seq: number): LineResult[] {
    const query = 'SELECT results FROM result WHERE chunk = ? AND seq = ?';
    const [row] = this.#storage.sql.exec<{ results: string }>(query, chunk, seq).toArray();
    return row === undefined ? [] : this.#parsed(chunk, seq, row.results);
  }

  /** Returns at most `most` commits that followed the commit with this number. */
  arrivals(after: number, most: number): Arrival[] {
    const query = 'SELECT number, chunk, seq FROM arrival WHERE number > ? ORDER BY number LIMIT ?';
    return this.#storage.sql.exec<Arrival>(query, after, most).toArray();
  }

  /** Returns all results of a chunk by line. */
  results(chunk: number): Map<number, LineResult> {
    const rows = this.#storage.sql.exec<{ seq: number; results: string }>(
      'SELECT seq, results FROM result WHERE chunk = ? ORDER BY seq',
      chunk,
    );
    const all = rows.toArray().flatMap(({ seq, results }) => this.#parsed(chunk, seq, results));
    return new Map(all.map((result) => [result.line, result]));
  }

  #parsed(chunk: number, seq: number, results: string): LineResult[] {
    if (results !== '') return JSON.parse(results) as LineResult[];
    const query = 'SELECT bytes FROM piece WHERE chunk = ? AND seq = ? ORDER BY number';
    const pieces = this.#storage.sql.exec<{ bytes: ArrayBuffer }>(query, chunk, seq).toArray();
    const whole = concat(pieces.map(({ bytes }) => new Uint8Array(bytes)));
    return JSON.parse(new TextDecoder().decode(whole)) as LineResult[];
  }

  forget(): void {
    this.forgetResults();
    for (const name of ['spec', 'state', 'demands', 'function', 'log']) this.#storage.kv.delete(name);
  }

  /** Deletes the results. Called after they were written to their files. */
  forgetResults(): void {
    this.#storage.sql.exec('DELETE FROM result');
    this.#storage.sql.exec('DELETE FROM piece');
    this.#storage.sql.exec('DELETE FROM arrival');
    this.#storage.sql.exec('DELETE FROM chunk');
  }
}
