/**
 * Histograms of prompt and response lengths per minute and model, updated as records arrive. The workload of an hour is
 * then read from a few rows, and not from a million records while new records wait. The histograms name no account, so
 * they stay when a user is deleted.
 */
import type { Sql } from '../../platform/object-context.ts';
import { NO_SESSION, type UsageRow } from '../usage-row.ts';
import { Histogram } from './histogram.ts';

export const MINUTE_MS = 60_000;

/** A row that was added (`sign` 1), or a row that was replaced (`sign` −1). */
export interface RowChange {
  row: UsageRow;
  sign: 1 | -1;
}

export interface TokenLengths {
  input: Histogram;
  output: Histogram;
}

type HistogramRow = { model: string; input: string; output: string };

export class MinuteHistograms {
  readonly #sql: Sql;

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  create(): void {
    this.#sql.exec(`CREATE TABLE minutes (minute INTEGER NOT NULL, model TEXT NOT NULL, input TEXT NOT NULL,
      output TEXT NOT NULL, PRIMARY KEY (minute, model)) WITHOUT ROWID`);
  }

  /** False for an hour that an older version started. */
  get exist(): boolean {
    return this.#sql.exec("SELECT 1 FROM sqlite_master WHERE name = 'minutes'").toArray().length > 0;
  }

  count(changes: readonly RowChange[]): void {
    const touched = new Map<string, TokenLengths & { minute: number; model: string }>();
    for (const { row, sign } of changes) {
      if (row.session === NO_SESSION) continue; // a request that no engine received has no lengths
      const minute = Math.floor(row.at / MINUTE_MS);
      const name = `${minute} ${row.model}`;
      const known = touched.get(name) ?? { minute, model: row.model, ...this.#read(minute, row.model) };
      touched.set(name, known);
      known.input.add(row.prompt, sign);
      known.output.add(row.completion, sign);
    }
    const query = 'INSERT OR REPLACE INTO minutes (minute, model, input, output) VALUES (?, ?, ?, ?)';
    for (const { minute, model, input, output } of touched.values()) {
      this.#sql.exec(query, minute, model, JSON.stringify(input.state()), JSON.stringify(output.state()));
    }
  }

  #read(minute: number, model: string): TokenLengths {
    const query = 'SELECT model, input, output FROM minutes WHERE minute = ? AND model = ?';
    const [row] = this.#sql.exec<HistogramRow>(query, minute, model).toArray();
    const [input, output] = [new Histogram(), new Histogram()];
    if (row !== undefined) {
      input.merge(JSON.parse(row.input));
      output.merge(JSON.parse(row.output));
    }
    return { input, output };
  }

  /**
   * Adds the minutes from `from` up to but excluding `to`. `of` returns the histograms of a model, to which they are
   * added.
   */
  addTo(of: (model: string) => TokenLengths, from: number, to: number): void {
    const query = 'SELECT model, input, output FROM minutes WHERE minute >= ? AND minute < ?';
    for (const { model, input, output } of this.#sql.exec<HistogramRow>(query, from, to)) {
      const known = of(model);
      known.input.merge(JSON.parse(input));
      known.output.merge(JSON.parse(output));
    }
  }
}
