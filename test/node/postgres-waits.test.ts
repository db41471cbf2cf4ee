/** Callers that wait for PostgreSQL when it is slow or hangs, in virtual time. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { PlaceQueue } from '../../gateway/hosts/node/postgresql/place-queue.ts';
import { PostgresD1 } from '../../gateway/hosts/node/postgresql/postgres-d1.ts';
import type { Connection, Rows } from '../../gateway/hosts/node/postgresql/postgres-pool.ts';

const CONNECTIONS = 8;
const STALL_MS = 3_000;
/** A slow server. The account of a key is a batch of nine statements. */
const STATEMENT_MS = 80;
const STATEMENTS = 9;

/** A pool of a server that answers each statement after STATEMENT_MS. */
class SlowPool {
  readonly #places = new PlaceQueue({ places: CONNECTIONS, stallMs: STALL_MS, isProgress: () => false });
  hangs = false;
  writers = 0;
  writersMost = 0;

  withConnection<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    return this.#places.withPlace(async () => {
      let writes = false;
      const query = async (text: string): Promise<Rows> => {
        if (text.startsWith('BEGIN; SET')) writes = true;
        if (writes && text.startsWith('BEGIN')) this.writersMost = Math.max(this.writersMost, ++this.writers);
        await new Promise((resolve) => setTimeout(resolve, this.hangs ? 60_000 : STATEMENT_MS));
        return { columns: [], rows: [], count: 1 };
      };
      try {
        return await work({ query });
      } finally {
        if (writes) this.writers--;
      }
    });
  }
}

let pool: SlowPool;
let accounts: PostgresD1;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  pool = new SlowPool();
  accounts = new PostgresD1(pool as ConstructorParameters<typeof PostgresD1>[0]);
});
afterEach(() => vi.useRealTimers());

const statement = () => accounts.prepare('select n from t where key = ?').bind('key');
const account = () => accounts.batch(Array.from({ length: STATEMENTS }, statement));
const change = () => accounts.prepare('update t set n = n + 1').run();

async function outcomes<T>(works: Promise<T>[], ms: number): Promise<string[]> {
  const all = Promise.allSettled(works);
  await vi.advanceTimersByTimeAsync(ms);
  return (await all).map(({ status }) => status);
}

it('of a hundred first requests none fails, although the last waits longer than a stalled server is waited for', async () => {
  let ended = 0;
  const reads = Array.from({ length: 100 }, async () => {
    await account();
    ended++;
  });
  await vi.advanceTimersByTimeAsync(STALL_MS);
  expect(ended).toBeLessThan(reads.length / 2);
  expect(new Set(await outcomes(reads, 60_000))).toEqual(new Set(['fulfilled']));
});

it('one change at a time holds a connection, so that reads pass a hundred changes that wait', async () => {
  const changes = Array.from({ length: 100 }, change);
  expect(await outcomes([account()], (STATEMENTS + 2) * STATEMENT_MS)).toEqual(['fulfilled']);
  expect(new Set(await outcomes(changes, 60_000))).toEqual(new Set(['fulfilled']));
  expect(pool.writersMost).toBe(1);
});

it('if the server hangs, callers that wait are refused together', async () => {
  pool.hangs = true;
  const begun = Array.from({ length: CONNECTIONS }, account);
  const waiting = Array.from({ length: 100 }, account);
  expect(new Set(await outcomes(waiting, STALL_MS))).toEqual(new Set(['rejected']));
  pool.hangs = false;
  await vi.advanceTimersByTimeAsync(120_000);
  expect(new Set(await outcomes(begun, 0))).toEqual(new Set(['fulfilled']));
  expect(await outcomes([account()], 60_000)).toEqual(['fulfilled']);
});

it('errors that show no work of the server do not let callers wait longer', async () => {
  const queue = new PlaceQueue({ places: 1, stallMs: 100, isProgress: (error) => error === 'known' });
  const fail = (error: unknown) => queue.withPlace(() => new Promise((_, reject) => setTimeout(reject, 60, error)));
  const noop = async () => {};
  expect(await outcomes([fail('lost'), fail('lost'), queue.withPlace(noop)], 1_000)).toEqual(Array(3).fill('rejected'));
  expect(await outcomes([fail('known'), fail('known'), queue.withPlace(noop)], 1_000)).toEqual([
    'rejected',
    'rejected',
    'fulfilled',
  ]);
});

it('callers work in the order in which they asked', async () => {
  const queue = new PlaceQueue({ places: 1, stallMs: 100, isProgress: () => true });
  const order: number[] = [];
  await outcomes(
    [0, 1, 2, 3].map((n) =>
      queue.withPlace(async () => {
        order.push(n);
        await new Promise((resolve) => setTimeout(resolve, 60));
      }),
    ),
    1_000,
  );
  expect(order).toEqual([0, 1, 2, 3]);
});
