/** Reads the usage records of one hour from PostgreSQL, as gateway/usage/hour/hour-records-reader.ts does from SQLite. */
import { Histogram } from '../../../../usage/hour/histogram.ts';
import {
  ATTEMPTS_MAX,
  type HourSums,
  type ModelWorkload,
  UNSERVED,
  type UsageOwner,
} from '../../../../usage/hour/hour-records-reader.ts';
import type { TokenLengths } from '../../../../usage/hour/minute-histograms.ts';
import { type KindCountQuery, type KindState, RequestKindCounts } from '../../../../usage/hour/request-kind-counts.ts';
import { type TraceQuestion, traceLine } from '../../../../usage/trace-line.ts';
import { NO_SESSION, type UsageRow } from '../../../../usage/usage-row.ts';
import type { Connection, Value } from '../postgres-pool.ts';

export class UsageReader {
  readonly #connection: Connection;
  readonly #hour: string;

  constructor(connection: Connection, hour: string) {
    this.#connection = connection;
    this.#hour = hour;
  }

  async #rows(query: string, values: readonly unknown[] = []): Promise<Value[][]> {
    return (await this.#connection.query(query, [this.#hour, ...values])).rows;
  }

  /** Returns rows in insertion order, after row `after`. `traced`: only rows of the trace export. */
  async page(after: number, limit: number, traced: boolean): Promise<{ n: number; row: UsageRow }[]> {
    const query = `SELECT n, row, buckets FROM usage_records WHERE hour = $1 AND n > $2 ${traced ? 'AND traced' : ''}
      ORDER BY n LIMIT $3`;
    return (await this.#rows(query, [after, limit])).map(([n, ...row]) => ({ n: Number(n), row: rowOf(row) }));
  }

  /** Returns lines of the trace export, and the row after which to continue; undefined: there are no more. */
  async traceLines(
    after: number,
    limit: number,
    question: TraceQuestion,
  ): Promise<{ text: string; after: number | undefined }> {
    const page = await this.page(after, limit, true);
    const { from, to } = question;
    const lines = page.filter(({ row }) => row.at >= from && row.at < to).map(({ row }) => traceLine(row, question));
    return { text: lines.join(''), after: page.length < limit ? undefined : page.at(-1)?.n };
  }

  /** Returns records of one user or one key, newest first. */
  async recent({ user, key, failed }: UsageOwner, limit: number): Promise<UsageRow[]> {
    const query = `SELECT row, buckets FROM usage_records WHERE hour = $1 AND ${ownedBy(user)}
      ${failed ? 'AND (error IS NOT NULL OR failed)' : ''} ORDER BY at DESC LIMIT $3`;
    return (await this.#rows(query, [user ?? key, limit])).map(rowOf);
  }

  /** Returns all attempts of one request, by its internal id. */
  async ofRequest(name: string): Promise<UsageRow[]> {
    const query = 'SELECT row, buckets FROM usage_records WHERE hour = $1 AND request = $2 ORDER BY at LIMIT $3';
    return (await this.#rows(query, [name, ATTEMPTS_MAX])).map(rowOf);
  }

  /** Returns the sums of one user or one key in this hour. */
  async sums({ user, key }: Omit<UsageOwner, 'failed'>): Promise<HourSums> {
    const query = `SELECT coalesce(sum(times), 0), coalesce(sum(times) FILTER (WHERE error IS NOT NULL OR failed), 0),
        coalesce(sum(prompt), 0), coalesce(sum(completion), 0)
      FROM usage_records WHERE hour = $1 AND ${ownedBy(user)}`;
    const [row = []] = await this.#rows(query, [user ?? key]);
    const [requests, failed, prompt, completion] = row.map(Number);
    return { requests: requests ?? 0, failed: failed ?? 0, prompt: prompt ?? 0, completion: completion ?? 0 };
  }

  async count(): Promise<number> {
    return Number((await this.#rows('SELECT count(*) FROM usage_records WHERE hour = $1'))[0]?.[0] ?? 0);
  }

  async workload(from: number, to: number): Promise<ModelWorkload[]> {
    const models = new Map<string, TokenLengths & { unserved: number }>();
    const of = (model: string) => {
      const known = models.get(model) ?? { unserved: 0, input: new Histogram(), output: new Histogram() };
      models.set(model, known);
      return known;
    };
    // One row for each length instead of one for each record.
    const lengths = `SELECT model, prompt, completion, count(*) FROM usage_records
      WHERE hour = $1 AND at >= $2 AND at < $3 AND session <> $4
      GROUP BY GROUPING SETS ((model, prompt), (model, completion))`;
    for (const [model, prompt, completion, times] of await this.#rows(lengths, [from, to, NO_SESSION])) {
      const { input, output } = of(String(model));
      if (prompt !== null) input.add(Number(prompt), Number(times));
      else output.add(Number(completion), Number(times));
    }
    const unserved = `SELECT model, sum(times) FROM usage_records
      WHERE hour = $1 AND at >= $2 AND at < $3 AND session = $4 AND error = $5 GROUP BY model`;
    for (const [model, times] of await this.#rows(unserved, [from, to, NO_SESSION, UNSERVED]))
      of(String(model)).unserved += Number(times);
    return [...models].map(([model, { unserved, input, output }]) => ({
      model,
      requests: input.count,
      unserved,
      input: input.state(),
      output: output.state(),
    }));
  }

  /** Returns counts by kind and slot of finished requests that arrived in the window. Reads each record. */
  async kindWorkload(from: number, to: number, { slotMs, kinds }: KindCountQuery): Promise<KindState[]> {
    const models = new Map<string, RequestKindCounts>();
    const of = (model: string) => {
      const known =
        models.get(model) ?? new RequestKindCounts(Object.hasOwn(kinds, model) ? (kinds[model] ?? []) : [], slotMs);
      models.set(model, known);
      return known;
    };
    const query = `SELECT session, at, model, prompt, completion, total_ms, kind, error, times, failed
      FROM usage_records WHERE hour = $1 AND at >= $2 AND at < $3`;
    for (const record of await this.#rows(query, [from, to])) {
      const [session, at, model, prompt, completion, duration, kind, error, times, failed] = record;
      const totalMs = duration === null ? undefined : Number(duration);
      const arrivedAt = Number(at) - (totalMs ?? 0);
      const counts = of(String(model));
      if (session === NO_SESSION) {
        if (error === UNSERVED) counts.addUnserved(arrivedAt, Number(times));
        continue;
      }
      const judged = kind === null ? undefined : String(kind);
      const lengths = { prompt: Number(prompt), completion: Number(completion) };
      counts.add({ ...lengths, arrivedAt, totalMs, judged, failed: failed === 1 });
    }
    return [...models].map(([model, counts]) => counts.state(model));
  }
}

function ownedBy(user: string | undefined): string {
  return user === undefined ? `"user" = '' AND key = $2` : '"user" = $2';
}

/** Returns a record with what became known later. */
export function rowOf([row, buckets]: readonly (Value | undefined)[]): UsageRow {
  const known = JSON.parse(String(row)) as UsageRow;
  return buckets === null || buckets === undefined
    ? known
    : { ...known, buckets: JSON.parse(String(buckets)) as string[] };
}
