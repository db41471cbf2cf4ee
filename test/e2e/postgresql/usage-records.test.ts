/** Usage records in PostgreSQL: each attempt counts once after any failure, and reports equal those of the hours' objects. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Env } from '../../../gateway/env.ts';
import { ObjectHost } from '../../../gateway/hosts/node/object-host.ts';
import { migratePostgres } from '../../../gateway/hosts/node/postgresql/migrate-postgres.ts';
import { PostgresD1 } from '../../../gateway/hosts/node/postgresql/postgres-d1.ts';
import { type Connection, PostgresPool } from '../../../gateway/hosts/node/postgresql/postgres-pool.ts';
import { UsageRecords } from '../../../gateway/hosts/node/postgresql/usage/usage-records.ts';
import { UsageWriter } from '../../../gateway/hosts/node/postgresql/usage/usage-writer.ts';
import { readAllMigrations } from '../../../gateway/hosts/node/serve/program-files.ts';
import { UsageObject } from '../../../gateway/usage/hour/usage-hour-object.ts';
import { NO_SESSION, type UsageRow, usageShardOf } from '../../../gateway/usage/usage-row.ts';
import { NO_POSTGRES } from '../../support/abilities.ts';
import { PostgresServer } from '../../support/postgres.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { seeded } from '../../support/random.ts';

const HOUR_MS = 3_600_000;
const AT = Math.floor(Date.now() / HOUR_MS) * HOUR_MS + 60_000;
const HOUR = usageShardOf(AT);
/** BEGIN, records, totals, COMMIT. */
const STATEMENTS = 4;

let server: PostgresServer;
let url: string;
let pool: PostgresPool;

function rowOf(n: number, changes: Partial<UsageRow> = {}): UsageRow {
  const what = { request: `request-${n}`, attempt: 1, model: 'm', endpoint: 1, streamed: true, status: 200 };
  const who = { provider: 'p', key: 'k', user: 'u', project: 'x', traced: true };
  const counts = { prompt: 10, completion: 5, cached: 1, reasoning: 0, firstMs: 20, totalMs: 100, bytes: 7 };
  const ended = { aborted: false, estimated: false, complete: true };
  return { session: 's', stream: n, at: AT + n, ...what, ...who, ...counts, ...ended, ...changes };
}

/** Breaks its connection before or after one of the statements. */
class BreakingPool extends PostgresPool {
  breaks: { before: number } | { after: number } | undefined;

  override withConnection<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    let statements = 0;
    return super.withConnection((connection) =>
      work({
        query: async (text, values) => {
          const { breaks } = this;
          const number = statements++;
          if (breaks !== undefined && 'before' in breaks && breaks.before === number) throw this.#broken();
          const rows = await connection.query(text, values);
          if (breaks !== undefined && 'after' in breaks && breaks.after === number) throw this.#broken();
          return rows;
        },
      }),
    );
  }

  #broken(): Error {
    this.breaks = undefined;
    return new Error('the connection broke');
  }
}

async function total(column: string): Promise<number> {
  return Number((await pool.query(`SELECT coalesce(sum(${column}), 0) FROM usage_totals`)).rows[0]?.[0]);
}

async function stored(): Promise<number> {
  return Number((await pool.query('SELECT count(*) FROM usage_records')).rows[0]?.[0]);
}

describe.skipIf(NO_POSTGRES !== undefined)(`usage records${NO_POSTGRES ? ` (${NO_POSTGRES})` : ''}`, () => {
  beforeAll(async () => {
    server = await PostgresServer.start(`${await temporaryDirectory()}-postgres`);
    url = await server.database('usage');
    pool = new PostgresPool({ url, name: 'test' });
    await migratePostgres(pool, (await readAllMigrations()).postgresMigrations);
  });

  afterAll(async () => {
    await pool.close();
    await endAll();
    await server.stop('SIGQUIT');
    await server.remove();
  });

  beforeEach(() => pool.query('DELETE FROM usage_records; DELETE FROM usage_totals'));

  const writer = (own: PostgresPool = pool, onStored: (rows: readonly UsageRow[]) => void = () => {}) =>
    new UsageWriter({ pool: own, onStored });

  test('two processes that report the same attempts at the same time count each of them once', async () => {
    const fresh: string[] = [];
    const writers = [0, 1].map(() => writer(pool, (rows) => fresh.push(...rows.map(({ request }) => request))));
    const rows = Array.from({ length: 2_000 }, (_, n) => rowOf(n));
    const batches = [rows, rows.toReversed()].map((all) =>
      Array.from({ length: 40 }, (_, at) => all.slice(at * 50, at * 50 + 50)),
    );
    await Promise.all(writers.flatMap((one, at) => (batches[at] ?? []).map((batch) => one.add(batch))));
    expect(await stored()).toBe(2_000);
    expect([await total('requests'), await total('completion_tokens')]).toEqual([2_000, 10_000]);
    expect(fresh.sort()).toEqual(rows.map(({ request }) => request).sort());
  });

  test('an exact record replaces an estimate of another process, and never the other way round', async () => {
    const estimate = rowOf(1, { session: 'there', stream: 9, estimated: true, complete: false, completion: 77 });
    const exact = rowOf(1, { stream: 4, at: AT + HOUR_MS });
    await writer().add([estimate]);
    expect([await total('completion_tokens'), await total('estimated')]).toEqual([77, 1]);
    await writer().add([exact]);
    await writer().add([estimate]);
    await writer().add([{ ...exact, completion: 6 }]);
    expect(await stored()).toBe(1);
    expect([await total('requests'), await total('completion_tokens'), await total('estimated')]).toEqual([1, 5, 0]);
  });

  test('estimate and exact record of one attempt in one batch count once', async () => {
    await writer().add([rowOf(1, { estimated: true, completion: 9 }), rowOf(1), rowOf(1, { completion: 8 })]);
    expect([await total('requests'), await total('completion_tokens')]).toEqual([1, 5]);
  });

  test('a connection that breaks at any statement loses and doubles nothing', async () => {
    const own = new BreakingPool({ url, name: 'breaking', most: 1 });
    const one = writer(own);
    let n = 0;
    for (const side of ['before', 'after'] as const)
      for (let at = 0; at < STATEMENTS; at++) {
        const rows = [rowOf(n++), rowOf(n++)];
        own.breaks = side === 'before' ? { before: at } : { after: at };
        await expect(one.add(rows)).rejects.toThrow('the connection broke');
        await one.add(rows);
        expect([await stored(), await total('requests')]).toEqual([n, n]);
      }
    await own.close();
  });

  test('requests that agents name cannot hide the record of a gateway', async () => {
    await writer().add([
      rowOf(1, { stream: -5 }),
      rowOf(1, { stream: 2 ** 52 + 3 }),
      rowOf(1, { session: NO_SESSION }),
    ]);
    await writer().add([rowOf(1)]);
    expect(await stored()).toBe(4);
  });

  test('U+0000 in a name and fractions of milliseconds are stored', async () => {
    const odd = rowOf(1, { model: 'a\0b', error: 'x\0', totalMs: 1.5, queueMs: 0.25, prompt: 3.2 });
    await Promise.all([writer().add([odd]), writer().add([rowOf(2)])]);
    expect(await stored()).toBe(2);
    const models = (await pool.query('SELECT model FROM usage_totals ORDER BY model')).rows.flat();
    expect(models).toEqual(['a\uFFFDb', 'm']);
  });

  test('more rows than may wait are refused as overloaded, and a caller can send them again', async () => {
    const one = writer();
    const rows = Array.from({ length: 30_000 }, (_, n) => rowOf(n));
    const [running, waiting] = [one.add([rowOf(-1)]), one.add(rows)];
    await expect(one.add(rows)).rejects.toMatchObject({ overloaded: true });
    await Promise.all([running, waiting]);
    await one.add(rows.slice(0, 10));
    expect(await total('requests')).toBe(30_001);
  });

  test('reports are those of the object of the hour', async () => {
    const random = seeded(7);
    const pick = <T>(...of: T[]): T => of[Math.floor(random() * of.length)] as T;
    const rows = Array.from({ length: 400 }, (_, n) =>
      rowOf(n, {
        at: AT + Math.floor(random() * 600_000),
        session: pick('s', 't'),
        model: pick('m', 'n'),
        user: pick('u', 'v', ''),
        key: pick('k', 'l'),
        status: pick<number | null>(200, 500, null),
        totalMs: pick<number | null>(null, Math.floor(random() * 9_000)),
        prompt: Math.floor(random() * 5_000),
        completion: Math.floor(random() * 900),
        traced: pick(true, false),
        ...(random() < 0.1 && { session: NO_SESSION, error: 'no_capacity', status: 503, times: 3, attempt: 0 }),
        ...(random() < 0.5 && { kind: pick('chat', 'code') }),
      }),
    );
    const [sqlite, postgres] = await both();
    for (const one of [sqlite.hour, postgres.hour]) {
      await one.add(rows);
      const { session, stream, request, attempt } = rows[3] as UsageRow;
      await one.annotate([{ session, stream, request, attempt, buckets: ['b'] }]);
    }
    const kinds = {
      m: [
        { name: 'chat', input: 500, output: 200, share: 0.5 },
        { name: 'code', input: 3_000, output: 100, share: 0.5 },
      ],
    };
    const question = { from: AT, to: AT + 300_000, format: 'csv' as const, secret: 'x', privateModels: new Set(['n']) };
    // An object keeps the lengths of a deleted user's requests, so they are read before.
    const workload = (hour: typeof sqlite.hour) => hour.workload(AT + 1_234, AT + 400_000).then(sorted);
    expect(await workload(postgres.hour)).toEqual(await workload(sqlite.hour));
    for (const one of [sqlite.hour, postgres.hour]) await one.forget('v');
    const reports = async (hour: typeof sqlite.hour) => ({
      count: await hour.count(),
      page: (await hour.page(0, 1_000, false)).map(({ row }) => row),
      trace: (await hour.traceLines(0, 1_000, question)).text,
      recent: await hour.recent({ user: 'u', key: 'k', failed: false }, 1_000),
      failed: await hour.recent({ user: undefined, key: 'l', failed: true }, 1_000),
      sums: [await hour.sums({ user: 'u', key: 'k' }), await hour.sums({ user: undefined, key: 'k' })],
      request: await hour.ofRequest('request-3'),
      kinds: sorted(await hour.kindWorkload(AT, AT + HOUR_MS, { slotMs: 60_000, kinds })),
    });
    const [theirs, ours] = [await reports(sqlite.hour), await reports(postgres.hour)];
    expect(theirs.count).toBeGreaterThan(200);
    expect(ours.count).toBe(theirs.count);
    expect(byStream(ours.page)).toEqual(byStream(theirs.page));
    expect(ours.trace.split('\n').sort()).toEqual(theirs.trace.split('\n').sort());
    for (const name of ['sums', 'request', 'kinds'] as const) expect(ours[name]).toEqual(theirs[name]);
    for (const name of ['recent', 'failed'] as const) expect(byStream(ours[name])).toEqual(byStream(theirs[name]));
    await Promise.all([sqlite.close(), postgres.close()]);
  });

  test('records are deleted after their retention, totals are not', async () => {
    const records = recordsOf();
    await records.namespace.getByName(HOUR).add([rowOf(1), rowOf(2, { at: AT - 401 * 24 * HOUR_MS })]);
    await records.prune();
    expect([await stored(), await total('requests')]).toEqual([1, 2]);
    await records.close();
  });

  const recordsOf = () => {
    const env = { OBSERVE: { getByName: () => ({ add: async () => {} }) } } as unknown as Env;
    return new UsageRecords({ url, env: () => env, background: { waitUntil: () => {} }, log: () => {} });
  };

  /** The hour as an object in a file, and in PostgreSQL. */
  const both = async () => {
    const env = { DB: new PostgresD1(pool), OBSERVE: { getByName: () => ({ add: async () => {} }) } } as unknown as Env;
    const directory = await temporaryDirectory();
    const host = new ObjectHost({ directory, classes: { USAGE: UsageObject }, env: () => env, log: () => {} });
    const records = recordsOf();
    return [
      { hour: host.namespace<UsageObject>('USAGE').getByName(HOUR), close: async () => host.close() },
      { hour: records.namespace.getByName(HOUR), close: () => records.close() },
    ] as const;
  };
});

const byStream = (rows: readonly UsageRow[]) => rows.toSorted((a, b) => a.stream - b.stream);
const sorted = <T extends { model: string }>(all: readonly T[]) => all.toSorted((a, b) => (a.model < b.model ? -1 : 1));
