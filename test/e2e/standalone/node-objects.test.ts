/** The Node host's promises beyond the contract of all hosts: faults stay in their object, and files are closed. */
import { mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import type { Env } from '../../../gateway/env.ts';
import { D1, migrateDatabase } from '../../../gateway/hosts/node/d1.ts';
import { Alarms } from '../../../gateway/hosts/node/object-alarms.ts';
import { ObjectHost } from '../../../gateway/hosts/node/object-host.ts';
import { OutputGate } from '../../../gateway/hosts/node/output-gate.ts';
import { Database } from '../../../gateway/hosts/node/sqlite.ts';
import { GatewayObject } from '../../../gateway/platform/gateway-object.ts';
import type { ObjectContext } from '../../../gateway/platform/object-context.ts';
import { execEach } from '../../../gateway/platform/storage/exec-each.ts';
import { storageHealth } from '../../../gateway/platform/storage/storage-health.ts';
import { d1Contract } from '../../gateway/accounts/d1-contract.ts';
import { D1_EXPECTED } from '../../gateway/accounts/d1-expected.ts';
import { eventually, temporaryDirectory } from '../../support/processes.ts';
import { ROOT } from '../../support/where.ts';

let resumed = Promise.withResolvers<void>();
let read = Promise.withResolvers<void>();

class Faulty extends GatewayObject {
  readonly #instance = crypto.randomUUID();

  instance(): string {
    return this.#instance;
  }

  write(n: number): number {
    this.ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS rows (n INTEGER)');
    this.ctx.storage.sql.exec('INSERT INTO rows (n) VALUES (?)', n);
    return n;
  }

  rows(): number {
    return this.ctx.storage.sql.exec<{ n: number }>('SELECT count(*) AS n FROM rows').one().n;
  }

  /** Starts a timer that writes and then throws. */
  failLater(): void {
    this.ctx.clock.after(1, () => {
      this.write(99);
      throw new Error('thrown in a timer');
    });
  }

  /** Reads after `resumed`, even if the object has ended. */
  async readLater(): Promise<number> {
    await resumed.promise;
    try {
      return this.rows();
    } finally {
      read.resolve();
    }
  }

  never(): Promise<void> {
    return new Promise(() => {});
  }
}

const hosts: ObjectHost[] = [];

afterEach(() => {
  vi.useRealTimers();
  for (const host of hosts.splice(0)) host.close();
});

/** Like a tunnel object: it makes its tables when it is created, and it may have a socket. */
class Connected extends GatewayObject {
  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS rows (n INTEGER); CREATE INDEX IF NOT EXISTS by_n ON rows (n)');
    const columns = ctx.storage.sql.exec("SELECT name FROM pragma_table_info('rows')").toArray();
    if (columns.length === 1) ctx.storage.sql.exec('ALTER TABLE rows ADD COLUMN more TEXT');
  }

  connect(): void {
    this.ctx.sockets.accept();
  }

  write(n: number): void {
    this.ctx.storage.sql.exec("INSERT INTO rows (n, more) VALUES (?, 'more')", n);
  }

  /** Writes one row, then all of `numbers`, of which none may come twice. */
  writeOnce(first: number, numbers: readonly number[]): string {
    const { sql } = this.ctx.storage;
    sql.exec('CREATE UNIQUE INDEX IF NOT EXISTS once ON rows (n)');
    this.write(first);
    try {
      const lists = numbers.map((n) => [n, 'more']);
      execEach(sql, 'INSERT INTO rows (n, more) VALUES (?, ?)', lists);
      return '';
    } catch (error) {
      return String(error);
    }
  }

  rows(): number[] {
    const rows = this.ctx.storage.sql.exec<{ n: number }>("SELECT n FROM rows WHERE more = 'more' ORDER BY n");
    return rows.toArray().map(({ n }) => n);
  }
}

async function opened(options: { directory?: string; socketFilesMax?: number } = {}) {
  const { directory = await temporaryDirectory(), ...more } = options;
  const log: string[] = [];
  const env = {} as Env;
  const host = new ObjectHost({
    ...more,
    directory,
    classes: { FAULTY: Faulty, CONNECTED: Connected },
    env: () => env,
    log: (line) => log.push(line),
  });
  hosts.push(host);
  const connected = host.namespace<Connected>('CONNECTED');
  return { directory, log, objects: host.namespace<Faulty>('FAULTY'), connected };
}

/** Files below `directory` that this process has open. */
function openFiles(directory: string): string[] {
  return readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      const path = readlinkSync(join('/proc/self/fd', fd));
      return path.startsWith(directory) ? [path] : [];
    } catch {
      return []; // closed meanwhile
    }
  });
}

test('what throws in a timer resets its object alone: its turn is undone, its calls fail, the next call finds a new instance', async () => {
  const { objects, log } = await opened();
  const [one, other] = [objects.getByName('one'), objects.getByName('other')];
  await one.write(1);
  const before = [await one.instance(), await other.instance()];
  const waiting = expect(one.never()).rejects.toThrow('FAULTY/one was reset');
  await one.failLater();
  await waiting;
  expect(log.join('\n')).toContain('thrown in a timer');
  expect(await one.rows()).toBe(1);
  expect(await one.instance()).not.toBe(before[0]);
  expect(await other.instance()).toBe(before[1]);
});

test('work of an object that has ended on a full disk does not lock its file', async () => {
  [resumed, read] = [Promise.withResolvers(), Promise.withResolvers()];
  const { objects } = await opened();
  const one = objects.getByName('one');
  await one.write(1);
  const waiting = expect(one.readLater()).rejects.toThrow('FAULTY/one was reset');
  storageHealth.setFailure('the disk is full', Date.now());
  try {
    await one.failLater();
    await waiting;
    resumed.resolve();
    await read.promise;
  } finally {
    storageHealth.setFailure(null, Date.now());
  }
  expect(await one.write(2)).toBe(2);
  expect(await one.rows()).toBe(2);
});

test('an object that is not used closes its file, and opens it again', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'Date'] });
  const { directory, objects } = await opened();
  const one = objects.getByName('one');
  await one.write(1);
  const its = () => openFiles(join(directory, 'FAULTY'));
  expect(its()).not.toEqual([]);
  vi.advanceTimersByTime(20_000);
  expect(its()).toEqual([]);
  expect(await one.rows()).toBe(1);
});

test('an object has no file until its first row, which finds all tables', async () => {
  const { directory, connected } = await opened();
  const files = () => readdirSync(join(directory, 'CONNECTED'));
  const one = connected.getByName('one');
  await one.connect();
  expect(await one.rows()).toEqual([]);
  expect(files()).toEqual([]);
  await one.write(7);
  expect(files()).toContain('one.sqlite');
  expect(await one.rows()).toEqual([7]);
  expect(await connected.getByName('other').rows()).toEqual([]);
  hosts.pop()?.close();
  const again = await opened({ directory });
  expect(await again.connected.getByName('one').rows()).toEqual([7]);
});

test('lists of bindings are stored all or not at all, and earlier writes of the turn stay', async () => {
  const { connected } = await opened();
  const one = connected.getByName('one');
  expect(await one.writeOnce(0, [])).toBe('');
  expect(await one.writeOnce(1, [7])).toBe('');
  expect(await one.writeOnce(2, [9, 8, 9])).toContain('UNIQUE');
  expect(await one.rows()).toEqual([0, 1, 2, 7]);
  expect(await one.writeOnce(3, [9, 8])).toBe('');
  expect(await one.rows()).toEqual([0, 1, 2, 3, 7, 8, 9]);
});

test('a file that cannot be created gets its tables at the next try', async () => {
  const path = join(await temporaryDirectory(), 'later', 'one.sqlite');
  const database = new Database(path);
  database.define('CREATE TABLE IF NOT EXISTS rows (n INTEGER)');
  const insert = () => database.rows('INSERT INTO rows VALUES (1)', []);
  expect(insert).toThrow('unable to open database file');
  mkdirSync(dirname(path));
  insert();
  expect(database.rows('SELECT n FROM rows', [])).toEqual([{ n: 1 }]);
  database.close();
});

test('of objects with sockets only the last used keep their files open, and the others open them again', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'Date'] });
  const { directory, connected } = await opened({ socketFilesMax: 2 });
  const all = ['a', 'b', 'c', 'd'].map((name) => connected.getByName(name));
  for (const [n, one] of all.entries()) {
    await one.connect();
    await one.write(n);
    vi.advanceTimersByTime(100);
  }
  const open = () => new Set(openFiles(join(directory, 'CONNECTED')).map((path) => basename(path).charAt(0)));
  expect(open()).toEqual(new Set(['a', 'b', 'c', 'd']));
  vi.advanceTimersByTime(20_000);
  await eventually('two files are closed', 5_000, () => (open().size === 2 ? true : undefined));
  expect(open()).toEqual(new Set(['c', 'd']));
  for (const [n, one] of all.entries()) expect(await one.rows()).toEqual([n]);
});

test('reading from an object that does not exist leaves no file', async () => {
  const { directory, objects } = await opened();
  await expect(objects.getByName('nothing').rows()).rejects.toThrow('no such table');
  expect(readdirSync(join(directory, 'FAULTY'))).toEqual([]);
});

test('an object whose file is damaged fails by that name, and the others go on', async () => {
  const { directory, objects } = await opened();
  const file = join(directory, 'FAULTY/broken.sqlite');
  writeFileSync(file, 'this is no database, but longer than the head of one'.repeat(100));
  await expect(objects.getByName('broken').write(1)).rejects.toThrow(`${file} is damaged: file is not a database`);
  await expect(objects.getByName('broken').rows()).rejects.toThrow('otela-gateway restore');
  // A file that stays open keeps its lock, and the next opening would then block this process.
  expect(openFiles(directory).filter((path) => path.startsWith(file))).toEqual([]);
  expect(await objects.getByName('whole').write(1)).toBe(1);
});

test('an alarm that fails after it has set the next one is in the log', async () => {
  const logged = vi.spyOn(console, 'error').mockImplementation(() => {});
  const next = Date.now() + 3_600_000;
  const alarms = new Alarms(new Database(join(await temporaryDirectory(), 'alarms.sqlite')), async (...object) => {
    alarms.of(...object).set(next);
    throw new Error('no accounts');
  });
  alarms.start();
  alarms.of('FAULTY', 'a').set(Date.now());
  await vi.waitUntil(() => logged.mock.calls.length > 0 || alarms.of('FAULTY', 'a').get() === next);
  expect(logged.mock.calls).toEqual([['the alarm of FAULTY/a failed; its next one is set: no accounts']]);
  expect(alarms.of('FAULTY', 'a').get()).toBe(next);
  alarms.close();
  logged.mockRestore();
});

test('what waits for a commit that fails never leaves', async () => {
  const database = new Database(join(await temporaryDirectory(), 'a.sqlite'));
  const failure = new Error('disk full');
  vi.spyOn(database, 'commit').mockImplementation(() => {
    throw failure;
  });
  const failures: unknown[] = [];
  const gate = new OutputGate(database, (error) => failures.push(error));
  const left: string[] = [];
  gate.pass(() => left.push('before'));
  gate.write();
  gate.pass(() => left.push('behind'));
  await expect(gate.committed()).rejects.toBe(failure);
  await eventually('the failure', 1_000, () => (failures.length > 0 ? true : undefined));
  expect([left, failures]).toEqual([['before'], [failure]]);
  database.close();
});

test("accounts behave as D1's, but for the words of a syntax error", async () => {
  const database = new Database(join(await temporaryDirectory(), 'accounts.sqlite'));
  const directory = join(ROOT, 'migrations');
  const names = readdirSync(directory).filter((name) => name.endsWith('.sql'));
  const migrations = names.sort().map((name) => ({
    name,
    statements: readFileSync(join(directory, name), 'utf8').split('--> statement-breakpoint'),
  }));
  migrateDatabase(database, migrations);
  migrateDatabase(database, migrations); // a second start has nothing to do
  const db = new D1(database) as unknown as D1Database;
  const syntax = 'D1_ERROR: near "SELEKT": syntax error: SQLITE_ERROR';
  expect(await d1Contract(db)).toEqual({ ...D1_EXPECTED, syntax });
  database.close();
});
