/** Objects with turns that are stored in PostgreSQL: only one process at a time can change an object. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Env } from '../../../gateway/env.ts';
import { LoggedObjects } from '../../../gateway/hosts/node/cluster/owned-objects.ts';
import { TurnLog } from '../../../gateway/hosts/node/cluster/turn-log.ts';
import { ObjectHost } from '../../../gateway/hosts/node/object-host.ts';
import { migratePostgres } from '../../../gateway/hosts/node/postgresql/migrate-postgres.ts';
import { PostgresPool, type Rows } from '../../../gateway/hosts/node/postgresql/postgres-pool.ts';
import { readAllMigrations } from '../../../gateway/hosts/node/serve/program-files.ts';
import { GatewayObject } from '../../../gateway/platform/gateway-object.ts';
import type { ObjectContext } from '../../../gateway/platform/object-context.ts';
import { StorageHealth } from '../../../gateway/platform/storage/storage-health.ts';
import { NO_POSTGRES } from '../../support/abilities.ts';
import { PostgresServer } from '../../support/postgres.ts';
import { endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { seeded } from '../../support/random.ts';

/** Rows after which an image replaces the log. */
const IMAGE_ROWS = 256;

class Counter extends GatewayObject {
  constructor(ctx: ObjectContext, env: Env) {
    super(ctx, env);
    ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS rows (n INTEGER PRIMARY KEY)');
  }

  add(n: number): number {
    this.ctx.storage.sql.exec('INSERT INTO rows (n) VALUES (?)', n);
    this.ctx.storage.kv.put('last', { n });
    return n;
  }

  rows(): number[] {
    const rows = this.ctx.storage.sql.exec<{ n: number }>('SELECT n FROM rows ORDER BY n').toArray();
    return rows.map(({ n }) => n);
  }

  last(): number | undefined {
    return this.ctx.storage.kv.get<{ n: number }>('last')?.n;
  }

  async alarmAt(at: number): Promise<void> {
    await this.ctx.storage.setAlarm(at);
  }

  async alarm(): Promise<void> {
    this.add(Date.now());
  }

  async forget(): Promise<void> {
    await this.ctx.storage.deleteAll();
  }
}

/** What happens to the next statements of a process that change something. */
type Fault = 'none' | 'held' | 'answer lost';

/** A pool that can hold appends up, or lose their answers. */
class FaultyPool extends PostgresPool {
  fault: Fault = 'none';
  #release = () => {};
  #held = Promise.resolve();

  hold(): void {
    this.#release(); // what an earlier call held up continues
    this.fault = 'held';
    this.#held = new Promise((resolve) => {
      this.#release = resolve;
    });
  }

  release(): void {
    this.fault = 'none';
    this.#release();
  }

  override async query(text: string, values?: readonly unknown[]): Promise<Rows> {
    if (!text.includes('INSERT INTO object_log')) return super.query(text, values);
    if (this.fault === 'held') await this.#held;
    const rows = await super.query(text, values);
    if (this.fault !== 'answer lost') return rows;
    this.fault = 'none';
    throw new Error('the answer was lost');
  }
}

let server: PostgresServer;
let url: string;
let control: PostgresPool;
const opened: { host: ObjectHost; pool: FaultyPool; log: TurnLog }[] = [];

/** A process, as far as its objects are concerned. Nothing keeps it from loading an object that it does not own. */
async function openProcess() {
  const directory = join(await temporaryDirectory(), 'scratch');
  mkdirSync(directory);
  const pool = new FaultyPool({ url, name: 'test', most: 3 });
  const health = new StorageHealth(() => {});
  const log = new TurnLog({ pool, onHealth: (failure) => health.setFailure(failure ?? null, Date.now()) });
  const owned = new LoggedObjects({ pool, log, me: crypto.randomUUID(), health, report: () => {} });
  const env = {} as Env;
  const host = new ObjectHost({ directory, classes: { COUNTER: Counter }, env: () => env, log: () => {}, owned });
  host.start();
  opened.push({ host, pool, log });
  return { host, pool, counter: (name: string) => host.namespace<Counter>('COUNTER').getByName(name) };
}

describe.skipIf(NO_POSTGRES !== undefined)(`owned objects${NO_POSTGRES ? ` (${NO_POSTGRES})` : ''}`, () => {
  beforeAll(async () => {
    server = await PostgresServer.start(`${await temporaryDirectory()}-postgres`);
    url = await server.database('objects');
    control = new PostgresPool({ url, name: 'test', most: 1 });
    await migratePostgres(control, (await readAllMigrations()).postgresMigrations);
  });

  afterAll(async () => {
    for (const { host, log, pool } of opened) {
      host.close();
      pool.release();
      await log.close(1_000);
      await pool.close();
    }
    await control.close();
    await server.stop('SIGQUIT');
    await server.remove();
    await endAll();
  });

  beforeEach(() => control.query('DELETE FROM object_log; DELETE FROM object_images; DELETE FROM object_alarms'));

  test('another process continues with everything that was acknowledged', async () => {
    const [one, two] = [await openProcess(), await openProcess()];
    for (const n of [1, 2, 3]) await one.counter('c').add(n);
    await expect(one.counter('c').add(3)).rejects.toThrow(/UNIQUE/);
    expect(await two.counter('c').rows()).toEqual([1, 2, 3]);
    expect(await two.counter('c').last()).toBe(3);
    await two.counter('c').forget();
    expect(await (await openProcess()).counter('c').rows()).toEqual([]);
  });

  test('a former owner that wakes up stores nothing, answers no call that wrote, and then has the new state', async () => {
    const [former, owner] = [await openProcess(), await openProcess()];
    await former.counter('c').add(1);
    former.pool.hold();
    const late = former.counter('c').add(2);
    const refused = expect(late).rejects.toThrow(/has another owner/);
    expect(await owner.counter('c').rows()).toEqual([1]);
    await owner.counter('c').add(3);
    former.pool.release();
    await refused;
    expect(await owner.counter('c').rows()).toEqual([1, 3]);
    expect(await former.counter('c').rows()).toEqual([1, 3]);
  });

  test('a former owner of a new object stores nothing, even if an image has replaced the first rows', async () => {
    const [former, owner] = [await openProcess(), await openProcess()];
    expect(await former.counter('c').rows()).toEqual([]);
    former.pool.hold();
    const refused = expect(former.counter('c').add(-1)).rejects.toThrow(/has another owner|was reset/);
    for (let n = 1; n <= IMAGE_ROWS + 10; n++) await owner.counter('c').add(n);
    await eventually('an image', 5_000, async () =>
      (await control.query('SELECT 1 FROM object_images')).count === 1 ? true : undefined,
    );
    await control.query('DELETE FROM object_log l USING object_images i WHERE l.object = i.object AND l.seq <= i.seq');
    former.pool.release();
    await refused;
    const all = Array.from({ length: IMAGE_ROWS + 10 }, (_, n) => n + 1);
    expect(await (await openProcess()).counter('c').rows()).toEqual(all);
  });

  test('if the answer of an append is lost, the turn is stored once and its call answered', async () => {
    const one = await openProcess();
    await one.counter('c').add(1);
    one.pool.fault = 'answer lost';
    expect(await one.counter('c').add(2)).toBe(2);
    expect(await one.counter('c').add(3)).toBe(3);
    expect(await (await openProcess()).counter('c').rows()).toEqual([1, 2, 3]);
  });

  test('an alarm is stored with its turn, and fires at the next owner', async () => {
    const [one, two] = [await openProcess(), await openProcess()];
    const at = Date.now() + 60_000;
    await one.counter('c').alarmAt(at);
    const stored = async () => (await control.query('SELECT object, at FROM object_alarms')).rows;
    expect(await stored()).toEqual([['COUNTER/c', at]]);
    two.host.addAlarms([{ key: 'COUNTER/c', at: Date.now() }]);
    await eventually('the alarm', 5_000, async () => ((await two.counter('c').rows()).length === 1 ? true : undefined));
    await eventually('its deletion', 5_000, async () => ((await stored()).length === 0 ? true : undefined));
  });

  test('an object with a name that PostgreSQL cannot store fails alone', async () => {
    const one = await openProcess();
    const [refused, stored] = await Promise.allSettled([one.counter('a\0b').add(1), one.counter('c').add(1)]);
    expect([refused.status, stored.status]).toEqual(['rejected', 'fulfilled']);
    expect(await one.counter('c').add(2)).toBe(2);
  });

  test('whatever happens to processes and answers, each acknowledged turn is there once', async () => {
    const random = seeded(47);
    const processes = [await openProcess(), await openProcess(), await openProcess()];
    const acknowledged: number[] = [];
    const calls: Promise<void>[] = [];
    for (let n = 1; n <= 600; n++) {
      const process = processes[Math.floor(random() * processes.length)];
      if (process === undefined) throw new Error('no process');
      const chance = random();
      if (chance < 0.02) process.pool.hold();
      else if (chance < 0.05) process.pool.fault = 'answer lost';
      else if (chance < 0.15) process.pool.release();
      const call = process.counter(`c${n % 3}`).add(n);
      calls.push(
        call.then(
          () => void acknowledged.push(n),
          () => {},
        ),
      );
      if (chance > 0.5) await Promise.race([call.catch(() => {}), new Promise(setImmediate)]);
    }
    for (const { pool } of processes) pool.release();
    await Promise.all(calls);
    const last = await openProcess();
    const stored: number[] = [];
    for (const name of ['c0', 'c1', 'c2']) stored.push(...(await last.counter(name).rows()));
    expect(acknowledged.filter((n) => !stored.includes(n))).toEqual([]);
    expect(new Set(stored).size).toBe(stored.length);
    expect(acknowledged.length).toBeGreaterThan(50);
  });
});
