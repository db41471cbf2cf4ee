/** Usage records move from the hours' objects to PostgreSQL and back, and reports stay the same. */
import { renameSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Env } from '../../../gateway/env.ts';
import {
  copyUsageToDirectory,
  copyUsageToPostgres,
  retentionAlarms,
} from '../../../gateway/hosts/node/migrate/copy-usage.ts';
import { ObjectHost } from '../../../gateway/hosts/node/object-host.ts';
import { migratePostgres } from '../../../gateway/hosts/node/postgresql/migrate-postgres.ts';
import { type Connection, PostgresPool } from '../../../gateway/hosts/node/postgresql/postgres-pool.ts';
import { UsageReader } from '../../../gateway/hosts/node/postgresql/usage/usage-reader.ts';
import { UsageWriter } from '../../../gateway/hosts/node/postgresql/usage/usage-writer.ts';
import { readAllMigrations } from '../../../gateway/hosts/node/serve/program-files.ts';
import { Database } from '../../../gateway/hosts/node/sqlite.ts';
import { UsageObject } from '../../../gateway/usage/hour/usage-hour-object.ts';
import { NO_SESSION, type UsageRow, usageShardOf } from '../../../gateway/usage/usage-row.ts';
import { NO_POSTGRES } from '../../support/abilities.ts';
import { PostgresServer } from '../../support/postgres.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { seeded } from '../../support/random.ts';

const HOUR_MS = 3_600_000;
const AT = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
const [HOUR, EARLIER] = [usageShardOf(AT), usageShardOf(AT - HOUR_MS)];
const NOTHING = new Error('rolled back');
/** More than are read together, twice. */
const ROWS = 2_300;

let server: PostgresServer;
let url: string;
let pool: PostgresPool;

function rowOf(n: number, changes: Partial<UsageRow> = {}): UsageRow {
  const what = { request: `request-${n}`, attempt: 1, model: 'm', endpoint: 1, streamed: true, status: 200 };
  const who = { provider: 'p', key: 'k', user: 'u', project: 'x', traced: true };
  const counts = { prompt: 10, completion: 5, cached: 1, reasoning: 0, firstMs: 20, totalMs: 100, bytes: 7 };
  const ended = { aborted: false, estimated: false, complete: true };
  return { session: 's', stream: n + 1, at: AT + n, ...what, ...who, ...counts, ...ended, ...changes };
}

function anyRows(): UsageRow[] {
  const random = seeded(11);
  const pick = <T>(...of: T[]): T => of[Math.floor(random() * of.length)] as T;
  return Array.from({ length: ROWS }, (_, n) =>
    rowOf(n, {
      at: AT + Math.floor(random() * 600_000),
      session: pick('s', 't'),
      model: pick('m', 'n', 'ü\ud800'),
      user: pick('u', 'v', ''),
      key: pick('k', 'l'),
      status: pick<number | null>(200, 500, null),
      totalMs: pick<number | null>(null, Math.floor(random() * 9_000)),
      prompt: Math.floor(random() * 5_000),
      completion: Math.floor(random() * 900),
      traced: pick(true, false),
      estimated: random() < 0.1,
      ...(random() < 0.1 && { session: NO_SESSION, error: 'no_capacity', status: 503, times: 3, attempt: 0 }),
      ...(random() < 0.3 && { kind: pick('chat', 'code') }),
      ...(random() < 0.3 && { sampling: { temperature: random() } }),
    }),
  );
}

type Hour = Pick<UsageReader, 'count' | 'page' | 'workload' | 'kindWorkload' | 'sums' | 'ofRequest' | 'traceLines'>;

/** The page is long enough for all rows. */
async function reportsOf(hour: Hour) {
  const question = { from: AT, to: AT + 300_000, format: 'csv' as const, secret: 'x', privateModels: new Set(['n']) };
  const kinds = { m: [{ name: 'chat', input: 500, output: 200, share: 1 }] };
  return {
    count: await hour.count(),
    rows: (await hour.page(0, 10_000, false)).map(({ row }) => row),
    trace: (await hour.traceLines(0, 10_000, question)).text,
    workload: sorted(await hour.workload(AT + 1_234, AT + 400_000)),
    kinds: sorted(await hour.kindWorkload(AT, AT + HOUR_MS, { slotMs: 60_000, kinds })),
    sums: [await hour.sums({ user: 'u', key: 'k' }), await hour.sums({ user: undefined, key: 'k' })],
    request: await hour.ofRequest('request-3'),
  };
}

const sorted = <T extends { model: string }>(all: readonly T[]) => all.toSorted((a, b) => (a.model < b.model ? -1 : 1));

describe.skipIf(NO_POSTGRES !== undefined)(`usage records that move${NO_POSTGRES ? ` (${NO_POSTGRES})` : ''}`, () => {
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

  /** Objects of hours. Their totals stay in them, because no alarm fires. */
  const openObjects = (directory: string) => {
    const env = { OBSERVE: { getByName: () => ({ add: async () => {} }) } } as unknown as Env;
    const host = new ObjectHost({ directory, classes: { USAGE: UsageObject }, env: () => env, log: () => {} });
    return { hour: (name = HOUR) => host.namespace<UsageObject>('USAGE').getByName(name), close: () => host.close() };
  };

  const newObjects = async (add: (hour: ReturnType<typeof openObjects>['hour']) => Promise<void>) => {
    const directory = await temporaryDirectory();
    const { hour, close } = openObjects(directory);
    await add(hour);
    await close();
    return directory;
  };

  const fileOf = (directory: string, hour = HOUR) => new Database(join(directory, 'USAGE', `${hour}.sqlite`));

  /** Leaves the database as it was. */
  const rolledBack = async (work: (connection: Connection) => Promise<void>) => {
    const done = pool.withConnection(async (connection) => {
      await connection.query('BEGIN');
      await work(connection);
      throw NOTHING;
    });
    await expect(done).rejects.toBe(NOTHING);
  };

  const requestsIn = async (connection: Connection) =>
    Number((await connection.query('SELECT coalesce(sum(requests), 0) FROM usage_totals')).rows[0]?.[0]);

  test('reports are the same in PostgreSQL and again in a directory', async () => {
    const rows = anyRows();
    let before: unknown;
    const from = await newObjects(async (hour) => {
      await hour().add(rows);
      const { session, stream, request, attempt } = rows[3] as UsageRow;
      await hour().annotate([{ session, stream, request, attempt, buckets: ['b'] }]);
      await hour(EARLIER).add([rowOf(1, { at: AT - 1, request: 'early' })]);
      before = await reportsOf(hour());
    });
    await rolledBack(async (connection) => {
      expect(await copyUsageToPostgres(from, connection)).toBe(ROWS + 1);
      expect(await reportsOf(new UsageReader(connection, HOUR))).toEqual(before);
      await connection.query(`UPDATE usage_records SET buckets = '["later"]' WHERE request = 'request-5'`);
      await connection.query("DELETE FROM usage_records WHERE request = 'request-1500'");
      const there = await reportsOf(new UsageReader(connection, HOUR));
      expect(there.rows[5]?.buckets).toEqual(['later']);
      const target = await temporaryDirectory();
      expect([...(await copyUsageToDirectory(connection, target))]).toEqual([
        [EARLIER, 1],
        [HOUR, ROWS - 1],
      ]);
      const { hour, close } = openObjects(target);
      expect(await reportsOf(hour())).toEqual(there);
      // A record that is reported again is known.
      await hour().add(rows.slice(0, 9));
      expect(await hour().count()).toBe(ROWS - 1);
      await close();
      const file = fileOf(target);
      expect(file.rows('SELECT count(*) AS n FROM totals', [])).toEqual([{ n: 0 }]);
      // A report on whole minutes reads these instead of records.
      expect(file.rows('SELECT count(DISTINCT minute) AS n FROM minutes', [])).toEqual([{ n: 10 }]);
      file.close();
    });
  });

  test('totals that waited in an object are added, except a batch that the accounts have', async () => {
    const from = await newObjects((hour) => hour().add([rowOf(1), rowOf(2)]));
    const file = fileOf(from);
    file.rows('INSERT INTO sending SELECT 7, total FROM totals', []);
    file.close();
    await rolledBack(async (connection) => {
      await copyUsageToPostgres(from, connection);
      expect(await requestsIn(connection)).toBe(4);
    });
    await rolledBack(async (connection) => {
      await connection.query("INSERT INTO usage_batches (shard, batch) VALUES ($1, 6), ('other', 7), ($1, 7)", [HOUR]);
      await copyUsageToPostgres(from, connection);
      expect(await requestsIn(connection)).toBe(2);
    });
    const without = fileOf(from);
    without.script('DELETE FROM sending; DELETE FROM totals');
    without.close();
    await rolledBack(async (connection) => {
      expect(await copyUsageToPostgres(from, connection)).toBe(2);
      expect(await requestsIn(connection)).toBe(0);
    });
  });

  test('an estimate and the exact record of another hour are both kept, and a known attempt counts once', async () => {
    const estimate = rowOf(1, { at: AT - 1, estimated: true });
    const from = await newObjects(async (hour) => {
      await hour(EARLIER).add([estimate]);
      await hour().add([rowOf(1), rowOf(2)]);
    });
    await copyUsageToPostgres(from, pool);
    expect(await requestsIn(pool)).toBe(3);
    await new UsageWriter({ pool, onStored: () => {} }).add([rowOf(2)]);
    expect(await requestsIn(pool)).toBe(3);
    const target = await temporaryDirectory();
    expect([...(await copyUsageToDirectory(pool, target)).values()]).toEqual([1, 2]);
    await pool.query('DELETE FROM usage_records; DELETE FROM usage_totals');
  });

  test('a copy that differs is refused in both directions', async () => {
    const from = await newObjects((hour) => hour().add([rowOf(1), rowOf(2)]));
    for (const change of ['NEW.prompt := 11', "NEW.row := replace(NEW.row, 'request-2', 'request-3')"]) {
      await rolledBack(async (connection) => {
        await connection.query(`CREATE FUNCTION damage() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN ${change}; RETURN NEW; END $$;
          CREATE TRIGGER damage BEFORE INSERT ON usage_records FOR EACH ROW EXECUTE FUNCTION damage()`);
        await expect(copyUsageToPostgres(from, connection)).rejects.toThrow(/usage records of .* differs/);
      });
    }
    await rolledBack(async (connection) => {
      await copyUsageToPostgres(from, connection);
      // Two records with one name in an object: the second would be lost.
      await connection.query(`UPDATE usage_records SET row = replace(row, '"stream":3', '"stream":2')`);
      await expect(copyUsageToDirectory(connection, await temporaryDirectory())).rejects.toThrow(/differs/);
    });
  });

  test('a file that is not named by an hour is refused', async () => {
    const from = await newObjects((hour) => hour().add([rowOf(1)]));
    renameSync(join(from, 'USAGE', `${HOUR}.sqlite`), join(from, 'USAGE', 'notes.sqlite'));
    await expect(copyUsageToPostgres(from, pool)).rejects.toThrow(/notes.sqlite does not have the name of an hour/);
  });

  test('moved hours check their retention one after another within a week', () => {
    const alarms = retentionAlarms(['a', 'b', 'c', 'd'], 1_000);
    expect([...alarms.keys()]).toEqual(['USAGE/a', 'USAGE/b', 'USAGE/c', 'USAGE/d']);
    const times = [...alarms.values()];
    expect(times).toEqual([1, 2, 3, 4].map((n) => 1_000 + (n * 7 * 24 * HOUR_MS) / 4));
  });
});
