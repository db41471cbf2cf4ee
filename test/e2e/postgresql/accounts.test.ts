/** The accounts in PostgreSQL: what conformance on the host `postgresql` does not show. */
import { asc, eq, getTableColumns, max } from 'drizzle-orm';
import { getTableConfig } from 'drizzle-orm/sqlite-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import * as tables from '../../../gateway/accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../../gateway/accounts/database.ts';
import { catalogue } from '../../../gateway/accounts/model-tables.ts';
import { sqlFragments } from '../../../gateway/accounts/sql-fragments.ts';
import { isUnchanged, leaveProject, nameIfBelowLimit, OWN_KEYS_MAX } from '../../../gateway/accounts/user-keys.ts';
import { extendAccessLists } from '../../../gateway/admin/models/catalogue.ts';
import type { Env } from '../../../gateway/env.ts';
import { openAccountsFile } from '../../../gateway/hosts/node/accounts-store.ts';
import { migratePostgres } from '../../../gateway/hosts/node/postgresql/migrate-postgres.ts';
import { PostgresD1 } from '../../../gateway/hosts/node/postgresql/postgres-d1.ts';
import { PostgresPool } from '../../../gateway/hosts/node/postgresql/postgres-pool.ts';
import { readAllMigrations } from '../../../gateway/hosts/node/serve/program-files.ts';
import { usageTotals } from '../../../gateway/usage/usage-tables.ts';
import { addToTotals, foldUser, type UsageTotal } from '../../../gateway/usage/usage-totals.ts';
import { NO_POSTGRES } from '../../support/abilities.ts';
import { PostgresServer } from '../../support/postgres.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';

type Store = Pick<Env, 'DB'>;

const { apiKeys, auditLog, users } = tables;
let server: PostgresServer;
let pool: PostgresPool;
const stores: Record<'postgresql' | 'sqlite', Store> = {
  postgresql: { DB: null as never },
  sqlite: { DB: null as never },
};

describe.skipIf(NO_POSTGRES !== undefined)(`accounts in PostgreSQL${NO_POSTGRES ? ` (${NO_POSTGRES})` : ''}`, () => {
  beforeAll(async () => {
    const directory = await temporaryDirectory();
    server = await PostgresServer.start(`${directory}-postgres`);
    const { migrations, postgresMigrations } = await readAllMigrations();
    pool = new PostgresPool({ url: await server.database('accounts'), name: 'test' });
    await migratePostgres(pool, postgresMigrations);
    stores.postgresql = { DB: new PostgresD1(pool) as unknown as Env['DB'] };
    stores.sqlite = { DB: openAccountsFile(`${directory}/accounts.sqlite`, migrations).db };
  });

  afterAll(async () => {
    await pool.close();
    await server.stop('SIGQUIT');
    await server.remove();
    await endAll();
  });

  beforeEach(async () => {
    for (const store of Object.values(stores))
      for (const table of [apiKeys, users, auditLog, catalogue, usageTotals]) await database(store).delete(table);
  });

  test('both databases have the same tables and columns', async () => {
    const declared = Object.values({ ...tables, catalogue, usageTotals }).flatMap((table) =>
      typeof table === 'object' && 'getSQL' in table
        ? getTableConfig(table).columns.map(({ name, notNull }) => `${getTableConfig(table).name}.${name} ${notNull}`)
        : [],
    );
    const query = `SELECT table_name || '.' || column_name || ' ' || (is_nullable = 'NO') FROM information_schema.columns
      WHERE table_schema = 'public'`;
    const stored = new Set((await pool.query(query)).rows.map(([text]) => text));
    expect(declared.filter((column) => !stored.has(column))).toEqual([]);
    expect(declared.length).toBeGreaterThan(100);
  });

  test('of concurrent insertions, no more than the limit succeed', async () => {
    const db = database(stores.postgresql);
    const insert = (n: number) =>
      db.insert(apiKeys).values({ ...key(n), name: nameIfBelowLimit(`key ${n}`, 'user_1', 1), userId: 'user_1' });
    const results = await Promise.allSettled(Array.from({ length: OWN_KEYS_MAX + 20 }, (_, n) => insert(n)));
    const refused = results.flatMap((one) => (one.status === 'rejected' ? [String(one.reason.cause)] : []));
    expect(refused).toHaveLength(20);
    expect(new Set(refused)).toEqual(new Set(['Error: D1_ERROR: NOT NULL constraint failed: api_keys.name']));
    expect(await db.$count(apiKeys)).toBe(OWN_KEYS_MAX);
  });

  test('numbers of the audit log become visible in their order', async () => {
    const db = database(stores.postgresql);
    const line = { at: 1, actor: 'a', action: 'key.create', object: 'o' };
    let writing = true;
    const writes = Promise.all(Array.from({ length: 40 }, () => db.insert(auditLog).values(line))).finally(() => {
      writing = false;
    });
    const late: number[] = [];
    let seen = new Set<number>();
    while (writing) {
      const ids = (await db.select({ id: auditLog.id }).from(auditLog)).map(({ id }) => id);
      const newest = Math.max(0, ...seen);
      late.push(...ids.filter((id) => !seen.has(id) && id < newest));
      seen = new Set(ids);
    }
    await writes;
    expect(late).toEqual([]);
  });

  test('text that PostgreSQL cannot store is refused with 400, also inside of JSON', async () => {
    const db = database(stores.postgresql);
    const insert = (after: unknown, object = 'o') =>
      queryOrUnavailable(db.insert(auditLog).values({ at: 1, actor: 'a', action: 'x', object, after }));
    for (const hostile of [insert('x', 'a\0b'), insert({ a: '\0' }), insert({ 'a\0': 1 })])
      await expect(hostile).rejects.toMatchObject({ status: 400 });
    await insert({ a: '\\u0000' });
    expect(await db.select({ after: auditLog.after }).from(auditLog)).toEqual([{ after: { a: '\\u0000' } }]);
  });

  test('while the server is away, a query is 503; afterwards queries work again', async () => {
    const db = database(stores.postgresql);
    await db.insert(users).values(user);
    await server.stop('SIGQUIT');
    await expect(queryOrUnavailable(db.select().from(users))).rejects.toMatchObject({ status: 503 });
    await expect(queryOrUnavailable(db.delete(users))).rejects.toMatchObject({ status: 503 });
    await server.run();
    expect(await queryOrUnavailable(db.select().from(users))).toMatchObject([user]);
  });

  describe.each(['sqlite', 'postgresql'] as const)('on %s', (name) => {
    test('an access list gets the successor of a key and loses its predecessor', async () => {
      const db = database(stores[name]);
      const row = { model: 'm', access: ['key_0', 'key_1', 'group:a'], updatedAt: 1 };
      await db.insert(catalogue).values([row, { ...row, model: 'n', access: null }]);
      await extendAccessLists(stores[name] as Env, { id: 'key_1', rotatedFrom: 'key_0' }, 'key_2');
      const lists = await db.select({ access: catalogue.access }).from(catalogue).orderBy(asc(catalogue.model));
      expect(lists).toEqual([{ access: ['key_1', 'group:a', 'key_2'] }, { access: null }]);
    });

    test('a user that leaves a project loses its keys, each with a line in the audit log', async () => {
      const db = database(stores[name]);
      await db.insert(apiKeys).values([1, 2, 3].map((n) => ({ ...key(n), userId: 'u', projectId: n < 3 ? 'p' : 'q' })));
      const [first, ...rest] = leaveProject(stores[name], { userId: 'u', projectId: 'p' }, { actor: 'login', now: 7 });
      if (first !== undefined) await db.batch([first, ...rest]);
      const { action, object, before } = auditLog;
      expect(await db.select({ action, object, before }).from(auditLog).orderBy(asc(object))).toEqual(
        [1, 2].map((n) => ({
          action: 'key.revoke',
          object: `key_${n}`,
          before: { name: `key ${n}`, user_id: 'u', project_id: 'p' },
        })),
      );
      const { id, revokedAt } = apiKeys;
      expect(await db.select({ revokedAt }).from(apiKeys).orderBy(asc(id))).toEqual([
        { revokedAt: 7 },
        { revokedAt: 7 },
        { revokedAt: null },
      ]);
    });

    test('a key is unchanged until one of its rights changes', async () => {
      const db = database(stores[name]);
      await db.insert(apiKeys).values({ ...key(1), models: ['a', 'b'], limits: { requests_per_minute: 5 } });
      const [row] = await db.select().from(apiKeys);
      if (row === undefined) throw new Error('no row');
      const unchanged = async () => (await db.select({ is: isUnchanged(row) }).from(apiKeys))[0]?.is;
      expect(await unchanged()).toBe(1);
      await db.update(apiKeys).set({ lastUsedAt: 9 });
      expect(await unchanged()).toBe(1);
      await db.update(apiKeys).set({ models: ['a'] });
      expect(await unchanged()).toBe(0);
    });

    test('totals add up, once for each batch, and outlive their user', async () => {
      const totals = ['u', 'v'].map((one) => total(one, 3));
      for (const batch of [1, 1, 2]) await addToTotals(stores[name], 'hour', batch, totals);
      await addToTotals(stores[name], 'hour', 3, [total('u', Number.MAX_SAFE_INTEGER)]);
      await foldUser(stores[name], 'u', '2026-11-20');
      const db = database(stores[name]);
      const { user: whose, requests, prompt } = usageTotals;
      expect(await db.select({ whose, requests, prompt }).from(usageTotals).orderBy(asc(whose))).toEqual([
        { whose: '', requests: Number.MAX_SAFE_INTEGER, prompt: 20 },
        { whose: 'v', requests: 6, prompt: 20 },
      ]);
    });

    test('values are stored and read alike, and texts are ordered by their bytes', async () => {
      const db = database(stores[name]);
      const names = ['b', 'B', 'a', 'ä', 'Z', '_', 'ab', '', '☃ "\'\\'];
      await db.insert(users).values(names.map((id) => ({ ...user, id, groups: [id] })));
      const rows = await db.select().from(users).orderBy(asc(users.id));
      const bytewise = names.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
      expect(rows.map(({ id }) => id)).toEqual(bytewise);
      expect(rows.map(({ groups }) => groups)).toEqual(bytewise.map((id) => [id]));
      await db.insert(tables.deviceLogins).values({ hash: 'h', userId: 'u', denied: true, expiresAt: 2 ** 53 - 1 });
      const { denied, expiresAt, approvedBy } = getTableColumns(tables.deviceLogins);
      const logins = await db.select({ denied, expiresAt, approvedBy }).from(tables.deviceLogins);
      expect(logins).toEqual([{ denied: true, expiresAt: 2 ** 53 - 1, approvedBy: null }]);
      await db.delete(tables.deviceLogins).where(eq(tables.deviceLogins.denied, true));
      expect(await db.select({ id: max(auditLog.id) }).from(auditLog)).toEqual([{ id: null }]);
      expect(await db.select({ n: sqlFragments(stores[name]).total(users.createdAt) }).from(users)).toEqual([{ n: 9 }]);
    });
  });
});

const user = { id: 'user_1', name: 'Ada', role: 'consumer' as const, createdAt: 1 };

function key(n: number) {
  return { id: `key_${n}`, hash: `hash ${n}`, prefix: 'p', name: `key ${n}`, role: 'consumer' as const, createdAt: 1 };
}

function total(whose: string, requests: number): UsageTotal {
  const names = { day: '2026-11-20', project: 'p', user: whose, key: 'k', model: 'm', provider: 'q' };
  const none = { failed: 0, aborted: 0, estimated: 0, completion: 0, cached: 0, reasoning: 0, firstTokens: 0 };
  const times = {
    firstTokenMs: 0,
    engineFirstTokenMs: 0,
    queueMs: 0,
    timed: 0,
    totalMs: 0,
    gpuMs: 0,
    audioMs: 0,
    images: 0,
  };
  return { ...names, requests, prompt: requests === 3 ? 10 : 0, ...none, ...times };
}
