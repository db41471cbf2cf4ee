/** Reads of accounts when PostgreSQL is slow, in virtual time. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { PostgresD1 } from '../../gateway/hosts/node/postgresql/postgres-d1.ts';
import type { Connection, Rows } from '../../gateway/hosts/node/postgresql/postgres-pool.ts';

/** As in postgres-pool.ts: connections, and how long a statement waits for one before it fails. */
const CONNECTIONS = 8;
const WAIT_MS = 3_000;
/** A slow server. The account of a key is a batch of nine statements. */
const STATEMENT_MS = 40;
const STATEMENTS = 9;

/** A pool of a server with one table, which has one number. */
class SlowPool {
  stored = 0;
  reads = 0;
  waitMs = WAIT_MS;
  #free = CONNECTIONS;
  readonly #waiting: (() => void)[] = [];

  async withConnection<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    await this.#connect();
    try {
      return await work({ query: (text, values) => this.#query(text, values) });
    } finally {
      this.#free++;
      this.#waiting.shift()?.();
    }
  }

  async #connect(): Promise<void> {
    if (this.#free === 0) {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      this.#waiting.push(resolve);
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(resolve), 1);
        reject(new Error('timeout exceeded when trying to connect'));
      }, this.waitMs);
      await promise;
      clearTimeout(timer);
    }
    this.#free--;
  }

  async #query(text: string, values: readonly unknown[] = []): Promise<Rows> {
    if (text.startsWith('select')) this.reads++;
    const seen = this.stored;
    await new Promise((resolve) => setTimeout(resolve, STATEMENT_MS));
    if (text.startsWith('update')) this.stored++;
    return { columns: ['n', 'key'], rows: [[seen, String(values[0] ?? '')]], count: 1 };
  }
}

let pool: SlowPool;
let accounts: PostgresD1;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  pool = new SlowPool();
  accounts = new PostgresD1(pool);
});
afterEach(() => vi.useRealTimers());

const statement = (key: string) => accounts.prepare('select n, key from t where key = ?').bind(key);
const account = (key: string) => accounts.batch(Array.from({ length: STATEMENTS }, () => statement(key)));

async function settled<T>(works: Promise<T>[], ms = 60_000): Promise<PromiseSettledResult<T>[]> {
  const all = Promise.allSettled(works);
  await vi.advanceTimersByTimeAsync(ms);
  return all;
}

it('a hundred first requests of one key read its account, although a hundred reads take longer than a wait may', async () => {
  const ended = await settled(Array.from({ length: 100 }, () => account('a')));
  expect(ended.filter(({ status }) => status === 'rejected')).toEqual([]);
  expect(pool.reads).toBe(STATEMENTS);
});

it('reads of different keys are not shared', async () => {
  const keys = Array.from({ length: 40 }, (_, n) => `key ${n}`);
  const ended = await settled(keys.map((key) => statement(key).all()));
  expect(ended.map((one) => one.status === 'fulfilled' && one.value.results[0]?.key)).toEqual(keys);
});

it('a read sees each change that was stored before it was asked, although an equal read already runs', async () => {
  const before = statement('a').all();
  await vi.advanceTimersByTimeAsync(1);
  const change = accounts.prepare('update t set n = n + 1').run();
  await vi.advanceTimersByTimeAsync(STATEMENT_MS);
  expect(pool.stored).toBe(0);
  await vi.advanceTimersByTimeAsync(2 * STATEMENT_MS);
  await change;
  const after = statement('a').all();
  await vi.advanceTimersByTimeAsync(10 * STATEMENT_MS);
  expect([(await before).results[0]?.n, (await after).results[0]?.n]).toEqual([0, 1]);
});

it('after reads that got no connection, an equal read is sent again', async () => {
  pool.waitMs = STATEMENT_MS / 2;
  const busy = Array.from({ length: CONNECTIONS }, (_, n) => statement(`busy ${n}`).all());
  const failed = await settled([statement('a').all(), statement('a').all()], STATEMENT_MS * 2);
  await Promise.all(busy);
  expect(failed.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  const [again] = await settled([statement('a').all()], STATEMENT_MS * 2);
  expect(again?.status).toBe('fulfilled');
});
