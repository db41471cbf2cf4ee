/** A follower with a full disk, and a follower of a primary that lost its role; the test plays the primary. */
import { afterEach, expect, test, vi } from 'vitest';
import type { AccountsReplica } from '../../../gateway/hosts/node/replication/accounts-replica.ts';
import { FollowerTable } from '../../../gateway/hosts/node/replication/follower-table.ts';
import { Replicator } from '../../../gateway/hosts/node/replication/replicator.ts';
import type { SignedGatewayClient } from '../../../gateway/hosts/node/replication/signed-gateway-client.ts';
import type { QueuedRecord, RecordQueue } from '../../../gateway/hosts/node/replication/usage-record-queue.ts';
import { Database } from '../../../gateway/hosts/node/sqlite.ts';
import type { AdaptiveTimeout } from '../../../shared/timing/adaptive-timeout.ts';

const ANSWER = { feed: 'f', epoch: 0, anew: false, rows: [], seq: 1, more: false, followers: [] };
const EVERY_MS = 1_000;

afterEach(() => void vi.useRealTimers());

function follower(
  say: (path: string, asked: unknown) => object | Promise<object>,
  apply: () => number = () => 0,
  waiting: readonly QueuedRecord[] = [],
  messages = 1,
) {
  vi.useFakeTimers();
  const lines: string[] = [];
  const heard: string[] = [];
  const told: string[] = [];
  const made = new Replicator({
    primary: new URL('http://first.example'),
    url: 'http://follower.example',
    version: '0.0.0',
    link: {
      ask: async (_: URL, path: string, asked: unknown, __: unknown, wait: AdaptiveTimeout) => {
        const from = performance.now();
        const late = Promise.withResolvers<never>();
        const timer = setTimeout(() => {
          wait.expired();
          late.reject(new Error('no answer'));
        }, wait.ms);
        const said = (async () => say(path, asked))();
        const answer = await Promise.race([said, late.promise]).finally(() => clearTimeout(timer));
        wait.answered(performance.now() - from);
        return { answer, by: 'first' };
      },
    } as unknown as SignedGatewayClient,
    copy: { begin() {}, complete() {}, apply } as unknown as AccountsReplica,
    records: {
      waiting: waiting.length,
      oldest: () => (told.filter((one) => one === 'delivered').length === messages ? [] : waiting),
      done: () => told.push('delivered'),
    } as unknown as RecordQueue,
    origin: 'follower',
    storeCounts: async ({ subject }) => void told.push(subject),
    state: { cursor: { feed: 'f', seq: 0 }, syncedAt: 0 },
    now: () => performance.now(),
    save: () => {},
    changed: async () => void told.push('changed'),
    acceptAnswer: () => true,
    acceptStatement: (statement) => heard.push(statement),
    log: (line) => lines.push(line),
  });
  return { made, lines, heard, told };
}

test('a full disk is no lost first: the first counts for both, so no part is taken beside it, and the copy grows old', async () => {
  let full = true;
  const { made, lines } = follower(
    () => ANSWER,
    () => {
      if (full) throw new Error('database or disk is full');
      return 0;
    },
  );
  await vi.advanceTimersByTimeAsync(20 * EVERY_MS);
  expect(made.connected).toBe(true);
  expect(made.syncedAt).toBe(0);
  expect(made.lastError).toContain('disk is full');
  expect(lines.filter((line) => line.includes('disk is full'))).toHaveLength(1);
  expect(await made.lostPrimary()).toBe(false);
  full = false;
  await vi.advanceTimersByTimeAsync(2 * EVERY_MS);
  expect([made.syncedAt > 0, made.lastError]).toEqual([true, undefined]);
  made.stop();
});

test('a first that takes no records, and answers, is still the one that counts', async () => {
  const { made } = follower(
    (path) => {
      if (path === '/gateway/records') throw new Error('503 its disk is full');
      return ANSWER;
    },
    undefined,
    [{ position: 1, kind: 'usage', name: '2026-11-25T09', body: '[]' }],
  );
  await vi.advanceTimersByTimeAsync(20 * EVERY_MS);
  expect([made.connected, made.lastError]).toEqual([true, '503 its disk is full']);
  made.stop();
});

test('a former first says which gateway is the first now', async () => {
  const { made, heard } = follower((path) => {
    if (path === '/gateway/epoch') return { epoch: 2, statement: 'the root’s word' };
    throw new Error('409 This gateway follows another one');
  });
  await vi.advanceTimersByTimeAsync(3 * EVERY_MS);
  expect(made.connected).toBe(false);
  expect(heard).toContain('the root’s word');
  made.stop();
});

test('budgets that cannot be heard hold up neither what changed in accounts nor records', async () => {
  const { made, told } = follower(
    (path) => {
      if (path === '/gateway/budgets') throw new Error('more than 8388608 bytes');
      return path === '/gateway/records' ? { position: 1 } : { ...ANSWER, budgets: 1 };
    },
    () => 1,
    [{ position: 1, kind: 'usage', name: '2026-11-25T09', body: '[]' }],
  );
  await vi.advanceTimersByTimeAsync(3 * EVERY_MS);
  expect(told).toContain('changed');
  expect(told).toContain('delivered');
  expect(made.lastError).toContain('more than');
  made.stop();
});

test('a subject whose counts come in parts is heard to its end', async () => {
  const asked: unknown[] = [];
  const places = [{ subject: 'a', origin: 'first', id: 'key_1' }, undefined];
  const { made, told } = follower((path, page) => {
    if (path !== '/gateway/budgets') return { ...ANSWER, budgets: 1 };
    asked.push(page);
    const after = places[asked.length - 1];
    const items = [{ subject: `part ${asked.length}`, month: '2026-11', counts: [] }];
    return { items, seq: after === undefined ? 1 : 0, more: after !== undefined, after };
  });
  await vi.advanceTimersByTimeAsync(3 * EVERY_MS);
  expect(told.filter((one) => one.startsWith('part'))).toEqual(['part 1', 'part 2']);
  expect(asked).toEqual([
    { seq: 0, after: undefined },
    { seq: 0, after: places[0] },
  ]);
  made.stop();
});

test('a first that was put back from a backup, and counts budgets from there, is heard from the beginning', async () => {
  let last = 9;
  const { made, told } = follower((path) =>
    path === '/gateway/budgets'
      ? { items: [{ subject: `of ${last}`, month: '2026-11', counts: [] }], seq: last, more: false }
      : { ...ANSWER, budgets: last },
  );
  await vi.advanceTimersByTimeAsync(2 * EVERY_MS);
  last = 4;
  await vi.advanceTimersByTimeAsync(2 * EVERY_MS);
  expect(told).toEqual(['of 9', 'of 4']);
  made.stop();
});

test('while a long backlog of records goes and budgets come, the first hears this gateway every second, and it hears what changed', async () => {
  const asked = { follow: 0, records: 0, budgets: 0 };
  const items = [{ subject: 'a', month: '2026-11', counts: [] }];
  const slowly = <T>(answer: T) => new Promise<T>((resolve) => setTimeout(resolve, 100, answer));
  const { made } = follower(
    (path) => {
      if (path === '/gateway/records') return slowly({ position: ++asked.records });
      if (path === '/gateway/budgets') return slowly({ items, seq: ++asked.budgets, more: asked.budgets < 100 });
      return { ...ANSWER, seq: ++asked.follow, budgets: 100 };
    },
    undefined,
    [{ position: 1, kind: 'usage', name: '2026-11-25T09', body: '[]' }],
    100,
  );
  await vi.advanceTimersByTimeAsync(8 * EVERY_MS);
  expect([asked.follow, asked.records]).toEqual([9, 81]);
  await vi.advanceTimersByTimeAsync(8 * EVERY_MS);
  expect(asked).toEqual({ follow: 17, records: 100, budgets: 61 });
  expect(made.cursor?.seq).toBe(17);
  made.stop();
});

test('a first that takes 3 s for each answer is followed, and counts for both: neither calls the other away', async () => {
  const database = new Database(':memory:');
  database.script('CREATE TABLE followers (key TEXT PRIMARY KEY, url TEXT, version TEXT, seen_at INTEGER)');
  const members = new FollowerTable(database, () => performance.now());
  const { made } = follower(async (path, asked) => {
    if (path === '/gateway/follow') {
      const { silence_ms = 4_000 } = asked as { silence_ms?: number };
      members.update('k', 'http://follower.example', '0.0.0', 0, silence_ms);
    }
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    return path === '/gateway/epoch' ? { epoch: 0 } : ANSWER;
  });
  // The follower gives up its first request, because it knew nothing about the primary.
  await vi.advanceTimersByTimeAsync(20_000);
  for (let second = 0; second < 60; second++) {
    await vi.advanceTimersByTimeAsync(1_000);
    expect([made.connected, members.list()[0]?.connected]).toEqual([true, true]);
  }
  made.stop();
});

test('a first that died is given up after seconds', async () => {
  let dead = false;
  const { made } = follower(() => (dead ? new Promise<never>(() => {}) : ANSWER));
  await vi.advanceTimersByTimeAsync(10_000);
  dead = true;
  await vi.advanceTimersByTimeAsync(20_000);
  expect([made.connected, await made.lostPrimary()]).toEqual([false, true]);
  made.stop();
});
