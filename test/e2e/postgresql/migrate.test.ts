/** `otela-gateway migrate`: a data directory moves to PostgreSQL and back, and nothing is lost or changed. */
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openAccountsFile } from '../../../gateway/hosts/node/accounts-store.ts';
import {
  compareTables,
  copyTablesToPostgres,
  copyTablesToSqlite,
} from '../../../gateway/hosts/node/migrate/copy-tables.ts';
import { MIGRATED_TABLES, type MigratedTable } from '../../../gateway/hosts/node/migrate/migrated-tables.ts';
import { migrateToDirectory } from '../../../gateway/hosts/node/migrate/to-directory.ts';
import { migrateToPostgres } from '../../../gateway/hosts/node/migrate/to-postgres.ts';
import { migratePostgres } from '../../../gateway/hosts/node/postgresql/migrate-postgres.ts';
import { PostgresPool } from '../../../gateway/hosts/node/postgresql/postgres-pool.ts';
import { readAllMigrations } from '../../../gateway/hosts/node/serve/program-files.ts';
import type { Database } from '../../../gateway/hosts/node/sqlite.ts';
import { NO_POSTGRES } from '../../support/abilities.ts';
import { startAgent } from '../../support/agent.ts';
import { type Engine, startEngine } from '../../support/engine.ts';
import { Gateway } from '../../support/gateway.ts';
import { PostgresServer } from '../../support/postgres.ts';
import { endAll, eventually, freePort, Managed, temporaryDirectory } from '../../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

const MODEL = 'moved-model';
const PROGRAM = await readAllMigrations();
const NOTHING = new Error('rolled back');

let server: PostgresServer;

describe.skipIf(NO_POSTGRES !== undefined)(`migrate${NO_POSTGRES ? ` (${NO_POSTGRES})` : ''}`, () => {
  beforeAll(async () => {
    server = await PostgresServer.start(`${await temporaryDirectory()}-postgres`);
  });

  afterAll(async () => {
    await endAll();
    await server.stop('SIGQUIT');
    await server.remove();
  });

  const newAccounts = async () =>
    openAccountsFile(join(await temporaryDirectory(), 'accounts.sqlite'), PROGRAM.migrations);

  test('rows of all tables with any values are equal in PostgreSQL and equal again in SQLite', async () => {
    const pool = new PostgresPool({ url: await server.database('rows'), name: 'test', most: 1 });
    await migratePostgres(pool, PROGRAM.postgresMigrations);
    const property = fc.asyncProperty(anyRows(), async (rows) => {
      const [source, target] = [await newAccounts(), await newAccounts()];
      fill(source.file, rows);
      const work = pool.withConnection(async (connection) => {
        // A sequence keeps its number when a transaction is rolled back.
        await connection.query('BEGIN; ALTER SEQUENCE audit_log_id_seq RESTART');
        const copied = await copyTablesToPostgres(source.file, connection);
        await compareTables(source.file, connection);
        expect(await copyTablesToSqlite(connection, target.file)).toBe(copied);
        await compareTables(target.file, connection);
        for (const { name, order } of MIGRATED_TABLES) {
          const query = `SELECT * FROM "${name}" ORDER BY ${order.map((column) => `"${column}"`).join(', ')}`;
          expect(target.file.rows(query, [])).toEqual(source.file.rows(query, []));
          // The next number is the same, too. Zero is the number before the first row.
          const next = ({ file }: typeof source) =>
            file.rows('SELECT max(seq, 0) AS seq FROM sqlite_sequence WHERE name = ? AND seq > 0', [name]);
          expect(next(target)).toEqual(next(source));
        }
        throw NOTHING;
      });
      await expect(work).rejects.toBe(NOTHING);
      await source.close();
      await target.close();
    });
    await fc.assert(property, { numRuns: 20 });
    await pool.close();
  });

  test('a changed row, a lost row and an additional row are found', async () => {
    const pool = new PostgresPool({ url: await server.database('changes'), name: 'test', most: 1 });
    await migratePostgres(pool, PROGRAM.postgresMigrations);
    const accounts = await newAccounts();
    for (const n of [1, 2, 3])
      accounts.file.rows('INSERT INTO users (id, name, role, created_at) VALUES (?, ?, ?, ?)', [
        `u${n}`,
        'n',
        'consumer',
        n,
      ]);
    const changes = [
      "UPDATE users SET name = 'm' WHERE id = 'u2'",
      "DELETE FROM users WHERE id = 'u3'",
      "INSERT INTO users (id, name, role, created_at) VALUES ('u4', 'n', 'consumer', 4)",
    ];
    for (const change of changes) {
      const work = pool.withConnection(async (connection) => {
        await connection.query('BEGIN');
        await copyTablesToPostgres(accounts.file, connection);
        await connection.query(change);
        await compareTables(accounts.file, connection);
      });
      await expect(work).rejects.toThrow(/users differs from the original in row [234]/);
    }
    accounts.file.rows("UPDATE users SET name = ? WHERE id = 'u1'", ['a\0b']);
    const work = pool.withConnection((connection) => copyTablesToPostgres(accounts.file, connection));
    await expect(work).rejects.toThrow(/A row of users has a text with U\+0000/);
    await accounts.close();
    await pool.close();
  });

  describe('a gateway with keys, usage and a node', () => {
    let engine: Engine;
    let data: string;
    let port: number;
    let key: string;
    let url: string;
    let before: unknown;
    /** Contains the data directories and the key, so that runs at the same time have nothing in common. */
    let home: string;
    const directory = () => home;

    beforeAll(async () => {
      url = await server.database('moved');
      home = await temporaryDirectory();
      const gateway = await Gateway.start({ data: join(home, 'data') });
      ({ data, port } = gateway);
      engine = await startEngine({ models: [MODEL] });
      const token = await gateway.createJoinToken();
      await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url });
      await gateway.serving(1);
      key = await gateway.createKey('k', { limits: { requests_per_minute: 1_000 } });
      await gateway.admin('PATCH', 'settings', { public_url: 'https://gw.example.org' });
      for (let n = 0; n < 3; n++) await ask(gateway);
      before = await stateOf(gateway, 3, key);
      await gateway.stop();
      writeFileSync(join(directory(), 'cluster.key'), 'k'.repeat(40), { mode: 0o600 });
      cpSync(data, `${data}-copy`, { recursive: true });
    });

    const keyFile = () => join(directory(), 'cluster.key');

    const ask = async (gateway: Gateway) => {
      const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'hello' }] }),
      });
      await answer.text();
      return answer.status;
    };

    const shared = async () => [
      ...['--database', url, '--files', join(directory(), 'files'), '--cluster-key', keyFile()],
      ...['--cluster-address', `127.0.0.1:${await freePort()}`],
    ];

    test('moves to several processes and back', async () => {
      const moving = new Managed([
        NODE,
        GATEWAY_MAIN,
        'migrate',
        '--data',
        data,
        '--to',
        url,
        '--cluster-key',
        keyFile(),
      ]);
      expect([(await moving.end(60_000)).code, moving.output]).toEqual([
        0,
        expect.stringMatching(/ 3 usage records, equal in both places/),
      ]);
      expect(readdirSync(join(data, 'moved', 'objects'))).toContain('REGISTRY');
      const without = new Managed([NODE, GATEWAY_MAIN, 'serve', '--data', data, '--port', '0']);
      expect((await without.end(60_000)).code).not.toBe(0);
      // The second process starts first: it must find the keys of the issuer in the database, and create none.
      const second = await Gateway.start({ args: await shared() });
      const first = await Gateway.start({ data, port, args: await shared() });
      for (const gateway of [first, second]) await gateway.serving(1);
      for (const gateway of [first, second]) expect(await stateOf(gateway, 3, key)).toEqual(before);
      expect([await ask(first), await ask(second)]).toEqual([200, 200]);
      const between = await stateOf(second, 5, key);
      const back = { directory: data, url, keyFile: keyFile(), program: PROGRAM };
      await first.stop();
      await expect(migrateToDirectory(back)).rejects.toThrow(/Stop all gateway processes first. 1 of them/);
      await second.stop();
      writeFileSync(`${keyFile()}.other`, 'o'.repeat(40), { mode: 0o600 });
      await expect(migrateToDirectory({ ...back, keyFile: `${keyFile()}.other` })).rejects.toThrow(
        /another --cluster-key/,
      );
      expect(await migrateToDirectory(back)).toMatchObject({ records: 5 });
      await expect(migrateToDirectory(back)).rejects.toThrow(/has accounts already/);
      const alone = await Gateway.start({ data, port });
      await alone.serving(1);
      expect(await stateOf(alone, 5, key)).toEqual(between);
      expect(await ask(alone)).toBe(200);
      // The hour's object, which is new, numbers its batches of totals from 1 again.
      await stateOf(alone, 6, key);
      await alone.stop();
      const late = new Managed([
        NODE,
        GATEWAY_MAIN,
        'serve',
        '--data',
        `${data}-late`,
        '--port',
        '0',
        ...(await shared()),
      ]);
      expect((await late.end(60_000)).code).not.toBe(0);
      expect(late.output).toContain('was moved to the directory');
    });

    /** Options of `migrate` for a copy of the directory, and a new database. */
    const anotherMove = async (name: string) => {
      const copy = join(directory(), name);
      cpSync(`${data}-copy`, copy, { recursive: true });
      return { directory: copy, url: await server.database(name), keyFile: keyFile(), program: PROGRAM };
    };

    test('a killed command is repeated, and begins again if nothing was stored', async () => {
      const options = await anotherMove('killed');
      const pool = new PostgresPool({ url: options.url, name: 'test', most: 1 });
      await migratePostgres(pool, PROGRAM.postgresMigrations);
      await pool.withConnection(async (connection) => {
        // The command waits for this lock with all accounts copied.
        await connection.query('BEGIN; LOCK TABLE gateway_secrets');
        const flags = ['--data', options.directory, '--to', options.url, '--cluster-key', keyFile()];
        const killed = new Managed([NODE, GATEWAY_MAIN, 'migrate', ...flags]);
        const waiting = "SELECT 1 FROM pg_locks WHERE relation = 'gateway_secrets'::regclass AND NOT granted";
        await eventually('the wait', 30_000, async () => (await connection.query(waiting)).rows[0]);
        killed.signal('SIGKILL');
        await killed.end(10_000);
        await connection.query('ROLLBACK');
      });
      await pool.close();
      expect(existsSync(join(options.directory, 'database.json'))).toBe(false);
      // The same, if it ended immediately before the commit.
      writeFileSync(join(options.directory, 'database.json'), '{"installation":"unknown","process":1}');
      expect(await migrateToPostgres(options)).toMatchObject({ finished: false });
      await expect(migrateToPostgres(options)).rejects.toThrow(/in PostgreSQL already/);
    });

    test('a command that was killed after the commit only completes the directory', async () => {
      const options = await anotherMove('late');
      const { directory: moved } = options;
      const { rows } = await migrateToPostgres(options);
      const binding = readFileSync(join(moved, 'database.json'));
      // As it was at the commit, and with one class that was put aside already.
      rmSync(moved, { recursive: true });
      cpSync(`${data}-copy`, moved, { recursive: true });
      writeFileSync(join(moved, 'database.json'), binding);
      mkdirSync(join(moved, 'moved/objects'), { recursive: true });
      renameSync(join(moved, 'objects/REGISTRY'), join(moved, 'moved/objects/REGISTRY'));
      const serving = new Managed([NODE, GATEWAY_MAIN, 'serve', '--data', moved, '--port', '0', '--database', url]);
      expect((await serving.end(60_000)).code).not.toBe(0);
      expect(serving.output).toContain('was not moved completely');
      expect(await migrateToPostgres(options)).toMatchObject({ finished: true });
      expect(readdirSync(join(moved, 'objects'))).not.toContain('USAGE');
      const back = { ...options, directory: `${moved}-back` };
      expect(await migrateToDirectory(back)).toMatchObject({ rows, finished: false });
      // As it was when the database said that its data was moved.
      mkdirSync(join(back.directory, 'moving'));
      for (const name of ['admin.key', 'issuer', 'objects', 'accounts.sqlite'])
        renameSync(join(back.directory, name), join(back.directory, 'moving', name));
      writeFileSync(join(back.directory, 'database.json'), binding);
      expect(await migrateToDirectory(back)).toMatchObject({ finished: true });
      expect(readdirSync(back.directory).sort()).toEqual([
        'accounts.sqlite',
        'admin.key',
        'issuer',
        'layout.json',
        'lock',
        'objects',
      ]);
    });

    test('a database with data is refused, and nothing is changed', async () => {
      const copy = join(directory(), 'refused');
      cpSync(`${data}-copy`, copy, { recursive: true });
      const options = { directory: copy, url: await server.database('taken'), keyFile: undefined, program: PROGRAM };
      await migrateToPostgres(options);
      const other = join(directory(), 'other');
      cpSync(`${data}-copy`, other, { recursive: true });
      await expect(migrateToPostgres({ ...options, directory: other })).rejects.toThrow(/already belongs to a gateway/);
      expect(existsSync(join(other, 'accounts.sqlite'))).toBe(true);
      expect(existsSync(join(other, 'database.json'))).toBe(false);
      // Only the accounts moved: the objects are still in the first directory.
      const empty = { ...options, directory: join(directory(), 'empty') };
      await expect(migrateToDirectory(empty)).rejects.toThrow(/objects of this gateway are in/);
      await migrateToDirectory(options);
      const alone = await Gateway.start({ data: copy });
      expect(await stateOf(alone, 3, key)).toEqual(before);
      await alone.stop();
    });

    test('a directory with other files, or without accounts, is refused', async () => {
      const foreign = join(directory(), 'foreign');
      mkdirSync(foreign);
      writeFileSync(join(foreign, 'notes.txt'), '');
      const options = { directory: foreign, url, keyFile: keyFile(), program: PROGRAM };
      await expect(migrateToPostgres(options)).rejects.toThrow(/contains no accounts of a gateway/);
      await expect(migrateToDirectory(options)).rejects.toThrow(/not empty/);
      rmSync(foreign, { recursive: true });
    });
  });
});

/** What operators see of accounts, when the totals have `requests` requests, and the single requests of `key`. */
async function stateOf(gateway: Gateway, requests: number, key: string): Promise<unknown> {
  const usage = await eventually('usage', 30_000, async () => {
    const found = (await gateway.admin('GET', 'usage?group_by=model')) as { data: { requests: number }[] };
    return found.data[0]?.requests === requests ? found : undefined;
  });
  const lists = ['keys', 'users', 'projects', 'join-tokens', 'settings', 'audit', 'providers'];
  const state = await Promise.all(lists.map((list) => gateway.admin('GET', list)));
  return [usage, ...(await recordsOf(gateway, requests, key)), ...state].map(withoutTimesOfUse);
}

/** Single requests of a key, and their sums by hour. */
async function recordsOf(gateway: Gateway, requests: number, key: string): Promise<unknown[]> {
  const read = async (list: string) => {
    const answer = await fetch(`${gateway.url}/admin/me/${list}`, { headers: { authorization: `Bearer ${key}` } });
    return ((await answer.json()) as { data: { request_id: string }[] }).data;
  };
  const records = await read('requests');
  expect(records).toHaveLength(requests);
  return [records.sort((a, b) => (a.request_id < b.request_id ? -1 : 1)), await read('hours?hours=2')];
}

/** The time of a key's last use is stored now and then. */
function withoutTimesOfUse(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value), (name, member: unknown) => (name === 'last_used_at' ? undefined : member));
}

type RowsByTable = Record<string, (string | number | null)[][]>;

const TEXT = fc.string({ unit: 'binary', maxLength: 12 }).map((text) => text.replaceAll('\0', ' '));
const VALUES = {
  text: TEXT,
  bigint: fc.maxSafeInteger(),
  boolean: fc.constantFrom(0, 1),
  json: fc.json({ maxDepth: 2, stringUnit: 'binary' }).map((text) => text.replaceAll('\\u0000', ' ')),
};

/** A few rows for each table, each with another primary key. */
function anyRows(): fc.Arbitrary<RowsByTable> {
  const rowsOf = ({ columns, order }: MigratedTable) =>
    fc.uniqueArray(fc.tuple(...columns.map(({ sent }) => VALUES[sent])), {
      maxLength: 4,
      selector: (row) => JSON.stringify(order.map((name) => row[columns.findIndex((column) => column.name === name)])),
    });
  return fc.record(Object.fromEntries(MIGRATED_TABLES.map((table) => [table.name, rowsOf(table)])));
}

function fill(accounts: Database, rows: RowsByTable): void {
  for (const { name, columns } of MIGRATED_TABLES)
    for (const row of rows[name] ?? []) {
      const names = columns.map((column) => `"${column.name}"`).join(', ');
      // A row that violates another unique index is left out.
      accounts.rows(`INSERT OR IGNORE INTO "${name}" (${names}) VALUES (${columns.map(() => '?').join(', ')})`, row);
    }
}
