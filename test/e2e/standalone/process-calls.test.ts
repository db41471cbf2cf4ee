/** Calls of objects between processes. Here a process is a Cluster of the test's own process. */
import { rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import * as z from 'zod';
import type { Env } from '../../../gateway/env.ts';
import { Cluster } from '../../../gateway/hosts/node/cluster/cluster.ts';
import { clusterKey } from '../../../gateway/hosts/node/cluster/cluster-key.ts';
import { DirectoryMembership } from '../../../gateway/hosts/node/cluster/directory-membership.ts';
import { LinkServer } from '../../../gateway/hosts/node/cluster/link-server.ts';
import { runStatements } from '../../../gateway/hosts/node/cluster/linked-accounts.ts';
import type { ProcessMembership } from '../../../gateway/hosts/node/cluster/process-membership.ts';
import type { ProcessRow } from '../../../gateway/hosts/node/cluster/process-table.ts';
import type { ObjectHost } from '../../../gateway/hosts/node/object-host.ts';
import { QUEUE_WAITING, REQUESTS } from '../../../gateway/observe/metric-families.ts';
import { countedOf, type OtherObserver, storiesOf } from '../../../gateway/observe/other-processes.ts';
import type { RequestTimeline } from '../../../gateway/observe/request-timeline.ts';
import type { MetricState } from '../../../shared/metrics/metric-store.ts';
import { temporaryDirectory } from '../../support/processes.ts';

const KEY = clusterKey('0123456789abcdef0123456789abcdef');
const OWNER = 'a';
/** Wait for a link. */
const LINKED = { timeout: 20_000 };

interface Process {
  cluster: Cluster;
  row: ProcessRow;
  /** The other processes, as this one sees them. */
  see(others: readonly ProcessRow[]): void;
  /** Milliseconds since PostgreSQL answered it. */
  silentMs: number;
  /** The owner of all objects, as this one sees it. */
  owner: string;
  /** What it reported about agents of the others: `open SESSION` and `closed SESSION`. */
  reports: string[];
  /** Called when it reads again which processes run. */
  onRead(): void;
}

const processes: Process[] = [];
afterEach(async () => {
  for (const { cluster } of processes.splice(0)) await cluster.close();
});

/** A process with a membership that says which process owns all objects: by default OWNER. */
async function start(incarnation: string, sharedPort?: string): Promise<Process> {
  const state = { silentMs: 0, owner: OWNER, onRead: () => {}, reports: [] as string[] };
  const row: ProcessRow = { incarnation, process: 1, address: '', url: undefined, version: '1', beat: 0, stores: true };
  let see: Process['see'] = () => {};
  const cluster = new Cluster({
    key: KEY,
    me: row,
    membership: ({ onProcesses }) => {
      see = onProcesses;
      return {
        owns: () => incarnation === state.owner,
        ownerOf: () => state.owner,
        current: () => undefined,
        now: async () => state.onRead(),
        get silentMs() {
          return state.silentMs;
        },
        running: [],
        size: 3,
        owned: 0,
        join: async () => {},
        prove: async () => {},
        close: async () => {},
      } satisfies ProcessMembership;
    },
    sharedPort,
    report: async () => {},
    local: { call: async (...args: unknown[]) => [incarnation, ...args] } as unknown as ObjectHost,
    owned: {
      call: async (...args) => [incarnation, ...args],
      fetch: async () => new Response(),
      addAlarms: () => {},
      resetAll: () => {},
      release: async () => {},
    },
    onTunnelsClosed: (sessions) => state.reports.push(...sessions.map((session) => `closed ${session}`)),
    onTunnelsOpen: (sessions) => state.reports.push(...sessions.map((session) => `open ${session}`)),
    log: () => {},
  });
  row.address = `127.0.0.1:${await cluster.open('127.0.0.1', 0)}`;
  const process = Object.assign(state, { cluster, row, see: (others: readonly ProcessRow[]) => see(others) });
  processes.push(process);
  return process;
}

test('a process that does not reach the owner of an object calls it through another process', async () => {
  const [a, b, c] = [await start('a'), await start('b'), await start('c')];
  c.see([a.row]);
  // Nothing listens at this address.
  b.see([{ ...a.row, address: '127.0.0.1:1' }, c.row]);
  const call = () => b.cluster.call('LIMITS', 'key:1', 'uses', [{ some: 1 }]);
  expect(await call()).toEqual(['a', 'LIMITS', 'key:1', 'uses', [{ some: 1 }]]);
});

test('a call crosses at most two links: a process that does not reach the owner either refuses it', async () => {
  const [a, b, c, d] = [await start('a'), await start('b'), await start('c'), await start('d')];
  const unreachable = { ...a.row, address: '127.0.0.1:1' };
  d.see([a.row]);
  c.see([unreachable, d.row]);
  b.see([unreachable, c.row]);
  let state = 'waiting';
  b.cluster.call('LIMITS', 'key:1', 'uses', []).then(
    () => {
      state = 'answered';
    },
    () => {
      state = 'refused';
    },
  );
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  // It waits for an owner that it reaches.
  expect(state).toBe('waiting');
});

/** Process a, which has not reached PostgreSQL for long, and process b. `isLinked`: a reaches b. */
async function silent({ isLinked = true } = {}) {
  const [a, b] = [await start('a'), await start('b')];
  a.silentMs = 60_000;
  a.see([isLinked ? b.row : { ...b.row, address: '127.0.0.1:1' }]);
  b.see([a.row]);
  return { a, b, reserve: (className = 'LIMITS') => a.cluster.call(className, 'key:1', 'reserve', []) };
}

test('a process that does not reach PostgreSQL lets another process find the owner of limits', async () => {
  const { b, reserve } = await silent();
  b.owner = 'b';
  await vi.waitFor(async () => expect(await reserve()).toEqual(['b', 'LIMITS', 'key:1', 'reserve', []]), LINKED);
});

test('while PostgreSQL is away for all processes, limits stay with their owner', async () => {
  const { a, reserve } = await silent();
  await vi.waitFor(async () => expect(await reserve()).toEqual(['a', 'LIMITS', 'key:1', 'reserve', []]), LINKED);
  expect(a.cluster.isOwner('LIMITS/key:1')).toBe(false);
});

test('a process that reaches neither PostgreSQL nor another process grants no limits', async () => {
  const { reserve } = await silent({ isLinked: false });
  await expect(reserve()).rejects.toThrow('neither PostgreSQL nor another process');
  // The log stops a former owner from storing, so other objects need no such rule.
  expect(await reserve('BATCH')).toEqual(['a', 'BATCH', 'key:1', 'reserve', []]);
});

test('a process without other processes grants limits without PostgreSQL', async () => {
  const { a, reserve } = await silent({ isLinked: false });
  a.see([]);
  expect(await reserve()).toEqual(['a', 'LIMITS', 'key:1', 'reserve', []]);
});

/** Three processes. Those in `links` reach each other in this order, such as `ab` for a link from a to b. */
async function three(links: readonly string[]) {
  const all = { a: await start('a'), b: await start('b'), d: await start('d') };
  const of = (name: string | undefined) => processes.find(({ row }) => row.incarnation === name) ?? all.a;
  const seen = new Map<Process, ProcessRow[]>();
  for (const [from, to] of links.map((link) => [of(link[0]), of(link[1])] as const)) {
    const rows = [...(seen.get(from) ?? []), to.row];
    seen.set(from, rows);
    from.see(rows);
    // A call of another class waits for the link.
    for (const one of processes) one.owner = to.row.incarnation;
    expect(await from.cluster.call('BATCH', 'key:1', 'wait', [])).toEqual([to.owner, 'BATCH', 'key:1', 'wait', []]);
    for (const one of processes) one.owner = OWNER;
  }
  const grant = async (by: Process) => {
    const [owner] = z.array(z.unknown()).parse(await by.cluster.call('LIMITS', 'key:1', 'reserve', []));
    return owner;
  };
  return { ...all, grant };
}

test('no process in doubt grants limits for another one while both reach the new owner', async () => {
  const { a, b, d, grant } = await three(['ab', 'ad', 'ba', 'bd', 'da', 'db']);
  a.silentMs = b.silentMs = 60_000;
  d.owner = 'd';
  expect([await grant(a), await grant(b)]).toEqual(['d', 'd']);
});

test('a process in doubt waits while a process that reaches PostgreSQL finds the owner', async () => {
  const { a, b, grant } = await three(['ab', 'ba']);
  a.silentMs = 60_000;
  b.owner = 'unknown';
  a.onRead = () => {
    b.owner = 'b';
  };
  expect(await grant(a)).toBe('b');
});

test('a process in doubt asks the owner that it knows, and needs no other process for it', async () => {
  const { a, b, d, grant } = await three(['ab', 'ad']);
  a.silentMs = 60_000;
  a.owner = b.owner = d.owner = 'd';
  expect(await grant(a)).toBe('d');
});

test('while PostgreSQL is away for all, a process reaches the owner of limits through another one', async () => {
  const { a, b, d, grant } = await three(['ab', 'bd']);
  a.see([b.row, { ...d.row, address: '127.0.0.1:1' }]);
  a.silentMs = b.silentMs = d.silentMs = 60_000;
  a.owner = b.owner = d.owner = 'd';
  expect(await grant(a)).toBe('d');
});

test('a process in doubt grants no limits for a process that does not reach the owner', async () => {
  const { a, b, d, grant } = await three(['ab', 'bd']);
  b.silentMs = 60_000;
  b.owner = 'b';
  a.owner = d.owner = 'd';
  a.onRead = () => {
    b.owner = 'd';
  };
  expect(await grant(a)).toBe('d');
});

/** The end of a process's links that has one agent. @returns the row of the process, and a function that ends it */
async function processWithAgent(port = 0): Promise<{ row: ProcessRow; end(): void }> {
  const server = new LinkServer({
    key: KEY,
    hello: { incarnation: 'n', version: '1' },
    tunnels: () => ['agent'],
    call: async () => null,
    fetch: async () => new Response(),
    log: () => {},
  });
  const address = `127.0.0.1:${await server.listen('127.0.0.1', port)}`;
  const row = { incarnation: 'n', process: 2, address, url: undefined, version: '1', beat: 0, stores: true };
  return { row, end: () => server.close() };
}

test('after a link is open again, its agents are reported as connected, and never as gone', async () => {
  const a = await start('a');
  const first = await processWithAgent();
  a.see([first.row]);
  await vi.waitFor(() => expect(a.reports).toEqual(['open agent']), LINKED);
  first.end();
  await vi.waitFor(() => expect(a.cluster.isConnected('agent')).toBe(false), LINKED);
  const second = await processWithAgent(Number(first.row.address.split(':')[1]));
  await vi.waitFor(() => expect(a.reports).toEqual(['open agent', 'open agent']), LINKED);
  second.end();
  // A refused connection proves that the process has ended.
  await vi.waitFor(() => expect(a.reports).toEqual(['open agent', 'open agent', 'closed agent']), LINKED);
});

test('agents of a process that is no longer there are reported as gone', async () => {
  const a = await start('a');
  const { row, end } = await processWithAgent();
  a.see([row]);
  await vi.waitFor(() => expect(a.reports).toEqual(['open agent']), LINKED);
  a.see([]);
  expect(a.reports).toEqual(['open agent', 'closed agent']);
  end();
});

test('a file that cannot be read is no proof that its process has ended', async () => {
  const directory = await temporaryDirectory();
  const file = join(directory, '1.json');
  const me = { incarnation: 'a', process: 0, address: '127.0.0.1:1', url: undefined, version: '1' };
  const seen: string[][] = [];
  const onProcesses = (others: readonly ProcessRow[]) => seen.push(others.map(({ incarnation }) => incarnation));
  const membership = new DirectoryMembership({ directory, me, events: { onProcesses }, now: () => 0 });
  writeFileSync(file, JSON.stringify({ ...me, incarnation: 'b', process: 1 }));
  await membership.join();
  rmSync(file);
  symlinkSync(file, file); // a loop of links cannot be opened
  await membership.now();
  rmSync(file);
  await membership.now();
  await membership.close();
  expect(seen).toEqual([['b'], ['b'], []]);
});

test('a process reads what the processes at its port count, and the timelines of all', async () => {
  const [a, b, c] = [await start('a', 'one'), await start('b', 'one'), await start('c')];
  a.see([b.row, c.row]);
  const read = (of: 'all' | 'port') =>
    Promise.allSettled(a.cluster.observers(of).map((one) => one.read())).then((all) =>
      all.map((one) => (one.status === 'fulfilled' ? one.value : String(one.reason))),
    );
  const [ofB, ofC] = ['b', 'c'].map((name) => [name, 'OBSERVE', 'observe', 'read', []]);
  await vi.waitFor(async () => expect(await read('all')).toEqual([ofB, ofC]), LINKED);
  expect(await read('port')).toEqual([ofB, 'Moved: the object has another owner']);
  expect(c.cluster.observers('port')).toEqual([]);
  const stories = a.cluster.observers('all').map((one) => one.stories('id', { key: 'k', user: '' }));
  expect(await Promise.all(stories)).toEqual(
    ['b', 'c'].map((name) => [name, 'OBSERVE', 'observe', 'stories', ['id', { key: 'k', user: '' }]]),
  );
});

/** The environment of a process that counted 1. Each of `others` counts, or does not answer. */
function counting(others: readonly OtherObserver[]): Env {
  const own = { read: async () => counted(1), stories: async () => [{ at: 1 }] };
  return { OBSERVE: { getByName: () => own }, PROCESSES: { observers: () => others } } as unknown as Env;
}

const counted = (value: number) => ({
  [REQUESTS.name]: [{ key: 'x', value }],
  [QUEUE_WAITING.name]: [{ key: 'm', value }],
});
const other = (process: number, read: () => Promise<MetricState>): OtherObserver => ({
  process,
  read,
  stories: async () => {
    await read();
    return [{ at: 2 } as RequestTimeline];
  },
});

test('counters of all processes do not fall while one of them is away, and its gauges do not count', async () => {
  const away = () => Promise.reject(new Error('away'));
  const sum = (others: readonly OtherObserver[]) => countedOf(counting(others), 'port');
  expect(await sum([other(2, async () => counted(10)), other(3, away)])).toEqual(counted(11));
  const since = { [REQUESTS.name]: [{ key: 'x', value: 11 }], [QUEUE_WAITING.name]: [{ key: 'm', value: 1 }] };
  expect(await sum([other(2, away)])).toEqual(since);
  expect(await sum([])).toEqual(since);
  expect(await sum([other(2, async () => counted(12))])).toEqual(counted(13));
});

test('a process that hangs delays metrics and timelines of the others by two seconds', async () => {
  const hangs = () => new Promise<MetricState>(() => {});
  const env = counting([other(4, hangs), other(5, async () => counted(1))]);
  const stories = await storiesOf(env, 'id');
  expect(stories).toEqual({ stories: [{ at: 2 }, { at: 1 }], isWhole: false });
  expect(await storiesOf(counting([]), 'id')).toEqual({ stories: [{ at: 1 }], isWhole: true });
});

test('statements of another process that are not statements run nothing', async () => {
  const run: string[] = [];
  const prepare = (text: string) => {
    run.push(text);
    throw new Error('no statement may run');
  };
  const db = { prepare } as never;
  const one = { text: 'SELECT 1', bindings: [] };
  const hostile: [string, unknown[]][] = [
    ['all', []],
    ['all', [[]]],
    ['all', ['SELECT 1']],
    ['all', [[{ text: 1, bindings: [] }]]],
    ['batch', [[{ text: 'SELECT 1' }]]],
    ['batch', [Array.from({ length: 10_001 }, () => one)]],
    ['exec', [[one]]],
    ['constructor', [[one]]],
  ];
  for (const [method, args] of hostile) await expect(runStatements(db, method, args)).rejects.toThrow();
  expect(run).toEqual([]);
});
