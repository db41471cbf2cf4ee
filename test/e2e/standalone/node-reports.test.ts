/** Reports on the Node host: they are read in a separate thread, with the same results, and leave nothing behind. */
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import type { Env } from '../../../gateway/env.ts';
import { D1 } from '../../../gateway/hosts/node/d1.ts';
import { ObjectHost } from '../../../gateway/hosts/node/object-host.ts';
import { ReportReads } from '../../../gateway/hosts/node/reports/report-reads.ts';
import { Database } from '../../../gateway/hosts/node/sqlite.ts';
import { storageHealth } from '../../../gateway/platform/storage/storage-health.ts';
import { UsageObject } from '../../../gateway/usage/hour/usage-hour-object.ts';
import type { UsageRow } from '../../../gateway/usage/usage-row.ts';
import { Gateway } from '../../support/gateway.ts';
import { endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { fillHour, usageRow } from '../../support/usage-rows.ts';

const HOUR = '2026-11-24T20';
const AT = Date.parse(`${HOUR}:00:00Z`);
const WHOSE = { user: 'user_1', key: 'key_1', failed: false };
const closings: (() => unknown)[] = [];

afterEach(async () => {
  storageHealth.setFailure(null, Date.now());
  await endAll();
  for (const close of closings.splice(0).reverse()) await close();
});

async function opened() {
  const directory = await temporaryDirectory();
  // There is no object to which totals could be sent. A failed alarm is only tried again.
  const env = {} as Env;
  const host = new ObjectHost({ directory, classes: { USAGE: UsageObject }, env: () => env, log: () => {} });
  const accounts = new Database(join(directory, 'accounts.sqlite'));
  accounts.script('CREATE TABLE totals (n INTEGER); INSERT INTO totals VALUES (1), (2), (3)');
  const reports = new ReportReads(join(directory, 'USAGE'));
  closings.push(
    () => host.close(),
    () => accounts.close(),
    () => reports.close(),
  );
  const objects = host.namespace<UsageObject>('USAGE');
  return {
    directory,
    accounts,
    reports,
    objects,
    hours: reports.hours(objects),
    d1: reports.accounts(accounts.path, new D1(accounts) as unknown as Env['DB']),
  };
}

const rows = (count: number): UsageRow[] => Array.from({ length: count }, (_, n) => usageRow(n + 1, AT + n));

test('every read of an hour says what the object itself says, as soon as a row is stored', async () => {
  const { hours, objects } = await opened();
  const [read, object] = [hours.getByName(HOUR), objects.getByName(HOUR)];
  await read.add(rows(20));
  const question = {
    from: AT,
    to: AT + 10,
    format: 'csv',
    secret: 's'.repeat(64),
    privateModels: new Set(['hidden']),
  } as const;
  expect(await read.count()).toBe(20);
  expect(await read.page(0, 7, true)).toEqual(await object.page(0, 7, true));
  expect(await read.traceLines(3, 7, question)).toEqual(await object.traceLines(3, 7, question));
  expect(await read.recent(WHOSE, 5)).toEqual(await object.recent(WHOSE, 5));
  expect(await read.sums(WHOSE)).toEqual(await object.sums(WHOSE));
  expect(await read.workload(AT, AT + 3_600_000)).toEqual(await object.workload(AT, AT + 3_600_000));
  await read.add([usageRow(21, AT)]);
  expect(await read.count()).toBe(21);
});

test('hours without use and hours that ended have no rows, and reading makes no file', async () => {
  const { hours, directory } = await opened();
  const read = hours.getByName(HOUR);
  expect([await read.count(), await read.page(0, 10, false), await read.workload(0, AT)]).toEqual([0, [], []]);
  expect(readdirSync(join(directory, 'USAGE'))).toEqual([]);
  await read.add(rows(2));
  expect(await read.count()).toBe(2);
});

test('a file that was replaced is read anew, and nothing is left beside one that was read', async () => {
  const { hours, directory } = await opened();
  const file = join(directory, `USAGE/${HOUR}.sqlite`);
  fillHour(file, 3, AT);
  expect(await hours.getByName(HOUR).count()).toBe(3);
  for (const end of ['', '-wal', '-shm']) rmSync(`${file}${end}`, { force: true });
  fillHour(file, 5, AT);
  expect(await hours.getByName(HOUR).count()).toBe(5);
  await eventually('the reader to close it', 10_000, () =>
    readdirSync(join(directory, 'USAGE')).length === 1 ? true : undefined,
  );
});

test('accounts are read as D1 gives them; a write is refused', async () => {
  const { d1, accounts } = await opened();
  const direct = new D1(accounts);
  const query = 'SELECT n, n * 2 AS twice FROM totals WHERE n > ?';
  const { results } = await direct.prepare(query).bind(1).all();
  expect(await d1.prepare(query).bind(1).all()).toMatchObject({ success: true, results });
  expect(await d1.prepare(query).bind(1).raw()).toEqual([
    [2, 4],
    [3, 6],
  ]);
  await expect(d1.prepare('DELETE FROM totals').all()).rejects.toThrow(/readonly/);
  await expect(d1.prepare('SELEKT').all()).rejects.toThrow(/syntax error/);
});

test('a thread that ends fails its reports alone; a new one answers the next', async () => {
  const { reports, hours } = await opened();
  const read = hours.getByName(HOUR);
  await read.add(rows(1));
  const waiting = expect(Promise.all([read.count(), read.count()])).rejects.toThrow('the report could not be read');
  await reports.close();
  await waiting;
  expect(await read.count()).toBe(1);
});

test('a gateway that read a report ends as ever', async () => {
  const gateway = await Gateway.start();
  expect(await gateway.admin('GET', 'usage')).toMatchObject({ data: [] });
  gateway.process.signal('SIGTERM');
  expect(await gateway.process.end(5_000)).toEqual({ code: 0, signal: null });
  expect(gateway.process.output).not.toContain('Warning');
});

test('while the storage fails reports are read by the gateway itself', async () => {
  const { hours } = await opened();
  await hours.getByName(HOUR).add(rows(4));
  storageHealth.setFailure('full', Date.now());
  expect(await hours.getByName(HOUR).count()).toBe(4);
});

test('a report over many rows does not hold up the thread that streams tokens', async () => {
  const { hours, objects, directory } = await opened();
  fillHour(join(directory, `USAGE/${HOUR}.sqlite`), 200_000, AT);
  // Measured by the thread's own processor time, because on a busy machine it pauses for other reasons.
  const usedMs = () => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1_000;
  };
  const held = async (report: () => Promise<unknown>) => {
    await report(); // starts the thread and reads the file into memory
    const from = usedMs();
    let [last, most, turns] = [from, 0, 0];
    const pulse = setInterval(() => {
      const now = usedMs();
      most = Math.max(most, now - last);
      last = now;
      turns++;
    }, 2);
    await report();
    const duringIt = turns;
    await delay(50);
    clearInterval(pulse);
    return { ms: usedMs() - from, most, turns: duringIt };
  };
  const inThread = await held(() => hours.getByName(HOUR).sums(WHOSE));
  const here = await held(() => objects.getByName(HOUR).sums(WHOSE));
  // Without the thread the whole report is one pause.
  expect(here.most).toBeGreaterThan(0.8 * here.ms);
  expect(here.turns).toBe(0);
  expect(inThread.most).toBeLessThan(0.3 * here.most);
  expect(inThread.turns).toBeGreaterThan(0);
});
