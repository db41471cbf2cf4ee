/** Records in their node's object, until other objects have them. */
import { env } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import { storageHealth } from '../../../../gateway/platform/storage/storage-health.ts';
import {
  createIngressUsageTable,
  ingressRow,
  pendingIngressUsage,
  storeIngressUsage,
} from '../../../../gateway/usage/outbox/ingress-usage-table.ts';
import {
  createUsageTable,
  markDelivered,
  oldestPendingUsage,
  storeUsage,
} from '../../../../gateway/usage/outbox/usage-record-table.ts';
import type { UsageRecord } from '../../../../shared/usage/usage-record.ts';
import { NO_USAGE } from '../../../../shared/wire/reported-usage.ts';
import { ingressUsage } from '../../../support/ingress-usage.ts';
import { runInDurableObject } from '../../support/durable.ts';

/** The last second of a day. */
const AT = Date.parse('2026-11-30T23:59:59Z');
const LATER = AT + 60_000;
const course = { endpoint: 1, streamed: true, status: 200, firstMs: 100, totalMs: 2_000 };

function record(stream: number, more: Partial<UsageRecord>): UsageRecord {
  const name = { requestId: 'r1', attempt: 1, session: 'a'.repeat(26), stream, receipt: '\n+\nm' };
  return { ...NO_USAGE, ...name, answerBytes: 70, at: AT, repeated: false, ...more };
}

function inAnObject<T>(name: string, run: (sql: SqlStorage) => T): Promise<T> {
  return runInDurableObject(env.LIMITS.getByName(name), (_, { storage }) => run(storage.sql));
}

test('an exact count that comes in another hour takes the place of its estimate where that lies', async () => {
  const late = { at: LATER, completion: 9, complete: true, answerBytes: 0, repeated: true };
  for (const stream of [1, 8]) {
    const [one, ...none] = await inAnObject(`records ${stream}`, (sql) => {
      createUsageTable(sql);
      storeUsage(sql, [record(1, { estimated: true, completion: 7, course })], 'lab');
      markDelivered(sql, oldestPendingUsage(sql, 10).at(-1)?.position ?? 0);
      storeUsage(sql, [record(stream, late)], 'lab');
      return oldestPendingUsage(sql, 10);
    });
    expect(none).toEqual([]);
    expect(one).toMatchObject({ settled: { prompt: 0, completion: 7 }, replaces: stream === 1 ? undefined : 1 });
    expect(one?.record).toEqual(record(stream, { ...late, at: AT, answerBytes: 70, course }));
  }
});

test('an exact count that comes while its estimate still waits leaves both to be told, in their order', async () => {
  for (const stream of [1, 8]) {
    const waiting = await inAnObject(`estimate that waits ${stream}`, (sql) => {
      createUsageTable(sql);
      storeUsage(sql, [record(1, { estimated: true, completion: 7, course })], 'lab');
      storeUsage(sql, [record(stream, { prompt: 100_000, completion: 9, repeated: true })], 'lab');
      return oldestPendingUsage(sql, 10);
    });
    expect(waiting).toMatchObject([
      { record: { completion: 7, estimated: true }, settled: undefined },
      { record: { prompt: 100_000, completion: 9, estimated: false }, settled: { prompt: 0, completion: 7 } },
    ]);
  }
});

test('an exact count of an attempt without a timeline has no times either', async () => {
  const [, one] = await inAnObject('without a course', (sql) => {
    createUsageTable(sql);
    storeUsage(sql, [record(1, { estimated: true })]);
    storeUsage(sql, [record(1, { at: LATER, completion: 9 })]);
    return oldestPendingUsage(sql, 10);
  });
  expect(one?.record).toEqual(record(1, { completion: 9 }));
});

test('what an ingress says exactly, and late, keeps how its estimate went', async () => {
  const how = { endpoint: 1, streamed: true, status: 200, first_ms: 100, total_ms: 2_000 };
  const said = (more: object) => JSON.stringify([ingressUsage(4, { ...more, at: AT })]);
  const rows = await inAnObject('ingress', (sql) => {
    createIngressUsageTable(sql);
    storeIngressUsage(sql, said({ estimated: true, completion_tokens: 2, course: how }), 'lab', AT);
    storeIngressUsage(sql, said({}), 'lab', LATER);
    return pendingIngressUsage(sql, 10).map((one) => ingressRow(one, 'a'.repeat(26), false));
  });
  expect(rows).toEqual([
    expect.objectContaining({ at: AT, completion: 4, estimated: false, status: 200, firstMs: 100, totalMs: 2_000 }),
  ]);
});

test('an ingress writes only rows of its own provider and node, of the last seven days and not of the future', async () => {
  const days = (n: number) => n * 86_400_000;
  const claims = [
    ingressUsage(1, { at: AT - days(6), provider: 'eth', session: 'b'.repeat(26) }),
    ingressUsage(2, { at: AT + 60_000 }),
    ingressUsage(3, { at: AT - days(8) }),
    ingressUsage(4, { at: AT + 6 * 60_000 }),
  ];
  const { refused, rows } = await inAnObject('ingress claims', (sql) => {
    createIngressUsageTable(sql);
    const refused = storeIngressUsage(sql, JSON.stringify(claims), 'lab', AT);
    return { refused, rows: pendingIngressUsage(sql, 10).map((one) => ingressRow(one, 'a'.repeat(26), false)) };
  });
  expect(refused).toEqual(['backdated', 'future']);
  const own = { provider: 'lab', key: 'ingress:lab', session: 'a'.repeat(26) };
  expect(rows).toEqual([
    expect.objectContaining({ ...own, request: 'request-1', at: AT - days(6) }),
    expect.objectContaining({ ...own, request: 'request-2', at: AT }),
  ]);
});

test('what a peer institution used is a row of the institution, and only our own agents report it', async () => {
  const serving = (name: string) => name.padEnd(16, 'x');
  const claim = (n: number, more: object) => ({
    ...ingressUsage(1, { at: AT }),
    peer: { name: 'psi', serving: serving(String(n)), gpu_ms: 1_500, ...more },
  });
  const claims = [claim(1, { project: 'proj_1' }), claim(2, {}), claim(2, {})];
  const bad = [claim(3, { name: 'a b' }), claim(4, { gpu_ms: -1 }), claim(5, { project: 'a@b' })];
  const { rows, refused } = await inAnObject('peer usage', (sql) => {
    createIngressUsageTable(sql);
    storeIngressUsage(sql, JSON.stringify([...claims, ...bad]), 'lab', AT);
    const refused = storeIngressUsage(sql, JSON.stringify([claim(6, {})]), 'lab@psi', AT);
    return { refused, rows: pendingIngressUsage(sql, 10).map((one) => ingressRow(one, 'a'.repeat(26), false)) };
  });
  expect(refused).toEqual(['foreign']);
  const row = { provider: 'lab', key: 'peer:psi', user: '', gpuMs: 1_500 };
  expect(rows).toEqual([
    expect.objectContaining({ ...row, project: 'proj_1@psi' }),
    expect.objectContaining({ ...row, project: '' }),
  ]);
});

test('what an ingress used waits as long as no object takes it, beside what is kept, and what a bound takes away is told of', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  const before = storageHealth.lost;
  const [first, left, lost] = await inAnObject('ingress that waits', (sql) => {
    createIngressUsageTable(sql);
    const fill = (rows: number) =>
      sql.exec(
        `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
         INSERT INTO ingress_usage (name, estimated, waiting, at, reporter, record)
         SELECT 'of the test ' || abs(random()), 0, 1, 0, 'lab', '{}' FROM n`,
        rows,
      );
    const one = (n: number) => storeIngressUsage(sql, JSON.stringify([ingressUsage(n, { at: AT })]), 'lab', AT);
    fill(20_000);
    one(1);
    const oldest = pendingIngressUsage(sql, 1)[0]?.number;
    fill(180_009);
    one(2);
    const count = sql.exec<{ n: number }>('SELECT count(*) AS n FROM ingress_usage').one().n;
    return [oldest, count, storageHealth.lost - before];
  });
  expect([first, left, lost]).toEqual([1, 200_000, 11]);
  expect(String(said.mock.calls)).toContain('11 usage records are lost');
  said.mockRestore();
});

test('records that wait in vain beyond a bound are told of as lost', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  const before = storageHealth.lost;
  const lost = await inAnObject('records that wait', (sql) => {
    createUsageTable(sql);
    sql.exec(
      `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200005)
       INSERT INTO usage (stream, estimated, record) SELECT i, 0, '{"at":0}' FROM n`,
    );
    sql.exec("INSERT INTO pending (stream, again, provider) SELECT stream, 0, 'lab' FROM usage");
    storeUsage(sql, [record(200_006, {})], 'lab');
    return [storageHealth.lost - before, oldestPendingUsage(sql, 1)[0]?.record.stream];
  });
  expect(lost[0]).toBe(6);
  expect(String(said.mock.calls)).toContain('6 usage records are lost');
  said.mockRestore();
});
