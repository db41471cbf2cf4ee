/** The checks of the status page over two hours, on Cloudflare's runtime, with a clock and a registry that the test controls. */
import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { settings } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import type { Env } from '../../../gateway/env.ts';
import type { ObjectContext } from '../../../gateway/platform/object-context.ts';
import { STATUS_NAME, StatusObject } from '../../../gateway/status/status-object.ts';
import { runInDurableObject } from '../support/durable.ts';

const MINUTE_MS = 60_000;
const MINUTES = 120;
const BEGIN = Date.UTC(2026, 10, 1);
const MODEL = 'org/model';

/** Minutes from the beginning, the last excluded. */
interface Times {
  /** No node serves the model. */
  outages: readonly [number, number][];
  /** The gateway does not run, so its alarm comes late. */
  stops: readonly [number, number][];
  /** The registry does not answer. */
  silences: readonly [number, number][];
}

const isIn = (minute: number, times: readonly [number, number][]) =>
  times.some(([from, to]) => minute >= from && minute < to);

/** Lives through the minutes, and returns the report of its last minute. */
async function live({ outages, stops, silences }: Times) {
  return await runInDurableObject(env.STATUS.getByName(STATUS_NAME), async (_, { storage }) => {
    storage.sql.exec('DELETE FROM checks');
    let now = BEGIN;
    let alarmAt: number | undefined;
    const minute = () => Math.floor((now - BEGIN) / MINUTE_MS);
    const census = async () => {
      if (isIn(minute(), silences)) throw new Error('the registry is away');
      return { models: isIn(minute(), outages) ? [] : [{ model: MODEL, ready: 1 }] };
    };
    const ctx = {
      name: STATUS_NAME,
      storage: {
        ...{ sql: storage.sql, kv: storage.kv },
        setAlarm: async (at: number) => {
          alarmAt = at;
        },
      },
      clock: { now: () => now },
    } as unknown as ObjectContext;
    const status = new StatusObject(ctx, {
      DB: env.DB,
      REGISTRY: { getByName: () => ({ census }) },
    } as unknown as Env);
    await status.wake();
    for (; minute() < MINUTES; now += MINUTE_MS) {
      if (isIn(minute(), stops) || alarmAt === undefined || alarmAt > now) continue;
      alarmAt = undefined;
      await status.alarm();
    }
    now -= MINUTE_MS;
    return await status.report();
  });
}

test('each minute of an outage counts, and a minute without a check does not', async () => {
  const value = { models: [MODEL] };
  await database(env).insert(settings).values({ name: 'status_page', value, updatedAt: 1 });
  const day = async (times: Partial<Times>) => {
    const report = await live({ outages: [], stops: [], silences: [], ...times });
    const [model] = report?.models ?? [];
    expect(model?.days.at(-1)?.day).toBe('2026-11-01');
    expect(model?.days.at(-1)?.availability).toBe(model?.day);
    return model?.day;
  };
  const share = (down: number, checks = MINUTES) => Math.floor(((checks - down) / checks) * 10_000) / 10_000;
  expect(await day({})).toBe(1);
  expect(await day({ outages: [[60, 61]] })).toBe(share(1));
  expect(
    await day({
      outages: [
        [30, 47],
        [70, 76],
      ],
    }),
  ).toBe(share(23));
  // A gateway that does not run, or cannot ask, knows nothing: neither an outage nor availability.
  expect(await day({ outages: [[30, 47]], stops: [[50, 80]] })).toBe(share(17, MINUTES - 30));
  expect(await day({ outages: [[30, 47]], silences: [[50, 80]] })).toBe(share(17, MINUTES - 30));
});

test('the checks are read once for all visitors between two checks', async () => {
  const value = { models: [MODEL, 'org/other'] };
  const setting = { name: 'status_page', value, updatedAt: 1 };
  await database(env).insert(settings).values(setting).onConflictDoUpdate({ target: settings.name, set: { value } });
  await runInDurableObject(env.STATUS.getByName('read once'), async (_, { storage }) => {
    let now = BEGIN;
    let reads = 0;
    const sql = {
      exec: (query: string, ...values: unknown[]) => {
        if (query.startsWith('SELECT')) reads++;
        return storage.sql.exec(query, ...values);
      },
    };
    const ctx = { storage: { sql, kv: storage.kv, setAlarm: async () => {} }, clock: { now: () => now } };
    const census = async () => ({ models: [{ model: MODEL, ready: 1 }] });
    const bindings = { DB: env.DB, REGISTRY: { getByName: () => ({ census }) } };
    const status = new StatusObject(ctx as unknown as ObjectContext, bindings as unknown as Env);
    await status.alarm();
    for (let n = 0; n < 3; n++)
      expect((await status.report())?.models).toMatchObject([
        { state: 'up', day: 1 },
        { state: 'down', day: 0 },
      ]);
    expect(reads).toBe(2);
    now += MINUTE_MS;
    await status.alarm();
    await status.report();
    expect(reads).toBe(4);
    // Another hour begins, and the checks stop.
    now += 60 * MINUTE_MS;
    expect((await status.report())?.models).toMatchObject([{ state: 'unknown' }, { state: 'unknown' }]);
    expect(reads).toBe(6);
  });
});
