/** An object's storage while its disk fails, by faults that are injected below it. */

import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { WorkerContext } from '../../../../gateway/hosts/worker/worker-context.ts';
import type { Clock, ObjectStorage } from '../../../../gateway/platform/object-context.ts';
import { ResilientStorage } from '../../../../gateway/platform/storage/resilient-storage.ts';
import {
  StorageFailingError,
  StorageHealth,
  storageHealth,
} from '../../../../gateway/platform/storage/storage-health.ts';
import { createUsageTable, newestUsage } from '../../../../gateway/usage/outbox/usage-record-table.ts';
import { type UsageBatch, UsageWriteBuffer } from '../../../../gateway/usage/outbox/usage-write-buffer.ts';
import type { UsageRecord } from '../../../../shared/usage/usage-record.ts';
import { NO_USAGE } from '../../../../shared/wire/reported-usage.ts';
import { runInDurableObject } from '../../support/durable.ts';

/** A clock that the test moves. */
class HandClock implements Clock {
  #now = Date.parse('2026-11-24T12:00:00Z');
  #timers: { at: number; ring: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  after(ms: number, ring: () => void): () => void {
    const timer = { at: this.#now + ms, ring };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((one) => one !== timer);
    };
  }

  every(): () => void {
    throw new Error('no test needs it');
  }

  pass(ms: number): void {
    const until = this.#now + ms;
    for (;;) {
      const [next] = this.#timers.filter(({ at }) => at <= until).toSorted((a, b) => a.at - b.at);
      if (next === undefined) break;
      this.#timers = this.#timers.filter((one) => one !== next);
      this.#now = Math.max(this.#now, next.at);
      next.ring();
    }
    this.#now = until;
  }
}

class Bench {
  readonly clock = new HandClock();
  readonly lines: string[] = [];
  readonly health = new StorageHealth((line) => this.lines.push(line));
  /** The code that each write throws. */
  fault: string | undefined;
  /** Writes that reached the database. */
  writes = 0;
  rang = 0;
  readonly storage: ResilientStorage;

  constructor(inner: ObjectStorage) {
    const write = <T>(run: () => T): T => {
      this.writes++;
      if (this.fault !== undefined) throw new Error(this.fault);
      return run();
    };
    const faulty: ObjectStorage = {
      sql: {
        exec: (query, ...bindings) =>
          /^\s*(INSERT|WITH|DELETE)/.test(query)
            ? write(() => inner.sql.exec(query, ...bindings))
            : inner.sql.exec(query, ...bindings),
        databaseSize: 0,
      },
      kv: {
        get: (key) => inner.kv.get(key),
        put: (key, value) => write(() => inner.kv.put(key, value)),
        delete: (key) => write(() => inner.kv.delete(key)),
        list: (options) => inner.kv.list(options),
      },
      getAlarm: () => inner.getAlarm(),
      setAlarm: async (at) => write(() => inner.setAlarm(at)),
      deleteAll: () => inner.deleteAll(),
    };
    this.storage = new ResilientStorage(faulty, this.health, this.clock, () => this.rang++);
  }
}

function onABench<T>(name: string, run: (bench: Bench, inner: ObjectStorage) => T | Promise<T>): Promise<T> {
  return runInDurableObject(env.LIMITS.getByName(`storage ${name}`), (_, { storage }) =>
    run(new Bench(storage), storage),
  );
}

test.each(['SQLITE_FULL', 'SQLITE_BUSY', 'SQLITE_IOERR', 'attempt to write a readonly database'])(
  'while the database says %s keys are kept in memory, read from there, and written later',
  async (fault) => {
    await onABench(fault, (bench, inner) => {
      const { storage, clock } = bench;
      storage.kv.put('kept', 1);
      storage.kv.put('deleted', 2);
      bench.fault = fault;
      const value = { nested: [3] };
      storage.kv.put('kept', value);
      value.nested.push(4);
      expect(storage.kv.delete('deleted')).toBe(true);
      const shown = () => [storage.kv.get('kept'), storage.kv.get('deleted'), [...storage.kv.list({ prefix: '' })]];
      const wanted = [{ nested: [3] }, undefined, [['kept', { nested: [3] }]]];
      expect(shown()).toEqual(wanted);
      expect(inner.kv.get('kept')).toBe(1);
      bench.fault = undefined;
      clock.pass(3_000);
      expect([...inner.kv.list({ prefix: '' })]).toEqual([['kept', { nested: [3] }]]);
      expect(shown()).toEqual(wanted);
      expect(bench.health.failure).toBeUndefined();
    });
  },
);

test('a statement that writes does not reach a database that fails more than once a second; reads do', async () => {
  await onABench('statements', (bench) => {
    const { storage, clock } = bench;
    storage.sql.exec('CREATE TABLE IF NOT EXISTS t (n INTEGER)');
    storage.sql.exec('INSERT INTO t VALUES (1)');
    bench.fault = 'SQLITE_FULL';
    const insert = () => storage.sql.exec('INSERT INTO t VALUES (2)');
    expect(insert).toThrow('SQLITE_FULL');
    const before = bench.writes;
    for (let n = 0; n < 100; n++) expect(insert).toThrow(StorageFailingError);
    expect(bench.writes).toBe(before);
    expect(storage.sql.exec<{ n: number }>('SELECT n FROM t').toArray()).toEqual([{ n: 1 }]);
    clock.pass(1_000);
    expect(insert).toThrow('SQLITE_FULL');
    bench.fault = undefined;
    clock.pass(1_000);
    insert();
    expect(storage.sql.exec<{ n: number }>('SELECT n FROM t').toArray()).toEqual([{ n: 1 }, { n: 2 }]);
  });
});

test('an alarm that cannot be stored rings from memory', async () => {
  await onABench('alarm', async (bench) => {
    const { storage, clock } = bench;
    bench.health.setFailure('no space', clock.now());
    const at = clock.now() + 5_000;
    await storage.setAlarm(at);
    expect(await storage.getAlarm()).toBe(at);
    clock.pass(4_999);
    expect(bench.rang).toBe(0);
    clock.pass(1);
    expect(bench.rang).toBe(1);
    expect(bench.writes).toBe(0);
  });
});

test('an error of the statement is the caller’s, and no failure of the storage', async () => {
  await onABench('wrong', (bench) => {
    expect(() => bench.storage.sql.exec('INSERT INTO nowhere VALUES (1)')).toThrow(/no such table/);
    expect(bench.health.failure).toBeUndefined();
  });
});

function batch(stream: number, records = 1): UsageBatch {
  const name = { attempt: 1, session: 'a'.repeat(26), receipt: '\n+\nm', answerBytes: 1, at: 1, repeated: false };
  const record = (n: number): UsageRecord => ({ ...NO_USAGE, ...name, requestId: `r${n}`, stream: n });
  return { records: Array.from({ length: records }, (_, n) => record(stream + n)), streams: [stream], provider: 'lab' };
}

test('usage records wait in their order, their agent is told when they are stored, and beyond the bound the oldest are lost', async () => {
  await onABench('usage', async (bench) => {
    const { storage, clock, health } = bench;
    createUsageTable(storage.sql);
    const told: number[] = [];
    let kept: Promise<unknown> | undefined;
    const store = new UsageWriteBuffer({
      sql: storage.sql,
      health,
      clock,
      waitUntil: (work) => {
        kept = work;
      },
      stored: ({ streams }) => told.push(...streams),
    });
    store.store(batch(1));
    bench.fault = 'SQLITE_FULL';
    store.store(batch(2));
    store.store({ records: [], streams: [3], provider: 'lab' }); // must not overtake
    store.store(batch(4));
    expect([told, store.waiting, health.held]).toEqual([[1], 2, 2]);
    store.store(batch(100, 49_999));
    expect([store.waiting, health.held, health.lost]).toEqual([50_000, 50_000, 1]);
    bench.fault = undefined;
    clock.pass(2_000);
    expect([told, store.waiting, health.held]).toEqual([[1, 3, 4, 100], 0, 0]);
    expect(newestUsage(storage.sql, 1)[0]?.requestId).toBe('r50098');
    await kept;
    store.store(batch(60_000));
    expect(told.at(-1)).toBe(60_000);
  });
});

test('on Cloudflare an object that is full keeps no other one from writing', async () => {
  const said: unknown[] = [];
  for (const name of ['full', 'free'])
    await runInDurableObject(env.LIMITS.getByName(`storage that is ${name}`), (_, state) => {
      const { storage, health } = new WorkerContext(state, () => {});
      storage.sql.exec('CREATE TABLE t (n INTEGER)');
      if (name === 'full') health.failed(new Error('database or disk is full: SQLITE_FULL'), Date.now());
      try {
        storage.sql.exec('INSERT INTO t VALUES (1)');
        said.push(name);
      } catch (error) {
        said.push(error);
      }
    });
  expect(said).toEqual([expect.any(StorageFailingError), 'free']);
  expect(storageHealth.failure).toBeUndefined();
});
