/** The course of a batch: samples of its counts over time, for the plots on its page. */
import type { ObjectStorage } from '../platform/object-context.ts';

export interface BatchSample {
  /** Seconds since the epoch. */
  at: number;
  /** Nodes that hold lines. */
  nodes: number;
  completed: number;
  failed: number;
  /** Lines that became open again, because their node was lost or gave them back. */
  requeued: number;
  gpu_seconds: number;
  /** Leases since the start, and those of them at nodes on which the function was loaded. */
  leases: number;
  warm_leases: number;
}

/** Maximum samples. When there are more, every second one is dropped, and the distance of new ones doubles. */
export const SAMPLES_MAX = 240;
/** Least distance of two samples. A running batch is checked every 5 s. */
const STEP_S = 5;

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS sample (at INTEGER PRIMARY KEY, nodes INTEGER NOT NULL, completed INTEGER NOT NULL, failed INTEGER NOT NULL,
    requeued INTEGER NOT NULL, gpu_seconds REAL NOT NULL, leases INTEGER NOT NULL, warm_leases INTEGER NOT NULL);
`;

export class BatchSeries {
  readonly #storage: ObjectStorage;

  constructor(storage: ObjectStorage) {
    this.#storage = storage;
    storage.sql.exec(SCHEMA);
  }

  all(): BatchSample[] {
    return this.#storage.sql
      .exec<BatchSample & Record<string, number>>(
        'SELECT at, nodes, completed, failed, requeued, gpu_seconds, leases, warm_leases FROM sample ORDER BY at',
      )
      .toArray();
  }

  /** @param isLast true: the batch has ended, so that the sample is stored at any distance from the previous one */
  add(sample: BatchSample, isLast = false): void {
    const { sql } = this.#storage;
    const last = sql.exec<{ at: number | null }>('SELECT max(at) AS at FROM sample').one().at;
    // A clock that was set back adds no samples until it has caught up.
    if (last !== null && sample.at < last + (isLast ? 0 : this.#stepS)) return;
    const { at, nodes, completed, failed, requeued, gpu_seconds, leases, warm_leases } = sample;
    sql.exec(
      'INSERT OR REPLACE INTO sample VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
      ...[at, nodes, completed, failed, requeued, gpu_seconds, leases, warm_leases],
    );
    if (sql.exec<{ n: number }>('SELECT count(*) AS n FROM sample').one().n <= SAMPLES_MAX) return;
    sql.exec(
      'DELETE FROM sample WHERE at IN (SELECT at FROM (SELECT at, row_number() OVER (ORDER BY at) AS n FROM sample) WHERE n % 2 = 0)',
    );
    this.#storage.kv.put('series-step', 2 * this.#stepS);
  }

  get #stepS(): number {
    return this.#storage.kv.get<number>('series-step') ?? STEP_S;
  }

  forget(): void {
    this.#storage.sql.exec('DELETE FROM sample');
    this.#storage.kv.delete('series-step');
  }
}
