/** Several processes grant requests from leases of one limits object, in virtual time. */
import { expect, test } from 'vitest';
import type { LeaseReport } from '../../gateway/accounts/limits/limit-leases.ts';
import type { MeterTime } from '../../gateway/accounts/limits/limit-meter.ts';
import { Limiter, type LimiterStore, type Reservation } from '../../gateway/accounts/limits/limiter.ts';
import type { LimitsObject } from '../../gateway/accounts/limits/limits-object.ts';
import { LimitShares } from '../../gateway/hosts/node/cluster/limit-shares.ts';
import type { ObjectStub } from '../../gateway/platform/object-context.ts';
import type { Limits } from '../../gateway/settings/limits-schema.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { seeded } from '../support/random.ts';

const MINUTE_MS = 60_000;
const PROCESSES = 4;
/** A response takes this long, and its usage is known then. */
const RESPONSE_MS = 800;
const USED = { prompt: 100, completion: 100 };
const MONTH = '2026-11';

type Event = { at: number; run(): void };

/** Events in the order of their times. Promises settle between two events. */
class VirtualTime {
  now = 0;
  readonly #events: Event[] = [];

  after(ms: number, run: () => void): void {
    const at = this.now + ms;
    let index = this.#events.length;
    while (index > 0 && (this.#events[index - 1]?.at ?? 0) > at) index--;
    this.#events.splice(index, 0, { at, run });
  }

  async until(end: number): Promise<void> {
    for (let next = this.#events[0]; next !== undefined && next.at <= end; next = this.#events[0]) {
      this.#events.shift();
      this.now = next.at;
      next.run();
      for (let n = 0; n < 12; n++) await Promise.resolve();
    }
    this.now = end;
  }
}

interface World {
  /** Part of reports that are lost, half of them after the owner counted them. */
  lost?: number;
  limits: Limits;
  /** Requests a second of each process. */
  rate: number;
  minutes: number;
}

async function simulate({ limits, rate, minutes, lost = 0 }: World) {
  const time = new VirtualTime();
  const random = seeded(11);
  const months = new Map<string, number>();
  const ledger = (id: string) => ({
    used: (month: string) => months.get(`${id} ${month}`) ?? 0,
    write: (month: string, used: number) => void months.set(`${id} ${month}`, used),
  });
  const store: LimiterStore = { minute: () => undefined, estimator: () => undefined, ledger, requests: () => [] };
  const now = (): MeterTime => ({ ms: time.now, month: MONTH });
  const limiter = new Limiter(store, now());
  const grants: { at: number; local: boolean }[] = [];
  let calls = 0;

  const owner = (isLocal: boolean) => {
    const call = async <T>(result: () => T): Promise<T> => {
      if (!isLocal) calls++;
      return result();
    };
    const report = async (sent: LeaseReport) => {
      if (random() >= lost) return limiter.report(sent, now());
      if (random() < 0.5) limiter.report(sent, now());
      throw new Error('the link broke');
    };
    return {
      reserve: (asked: Reservation) => call(() => limiter.reserve(asked, now())),
      reserveWithLease: (asked: Reservation, processes: number) =>
        call(() => {
          const verdict = limiter.reserve(asked, now());
          return { verdict, lease: verdict.granted ? limiter.lease(asked, processes, now()) : undefined };
        }),
      lease: async (asked: Reservation, processes: number) => limiter.lease(asked, processes, now()),
      report,
      settle: async (_source: string, items: readonly { settlement: { name: string } }[]) => {
        for (const { settlement } of items)
          limiter.settle(
            {
              ...{ name: settlement.name, keyId: 'k', attempt: 1, ...USED, isComplete: true, gpuMs: 0 },
              ...{ isReserved: true, ageMs: 0, month: MONTH },
            },
            now(),
          );
      },
    } as unknown as ObjectStub<LimitsObject>;
  };
  const processes = Array.from({ length: PROCESSES }, (_, at) => {
    const stub = owner(at === 0);
    const shares = new LimitShares({
      limits: { getByName: () => stub },
      isOwner: () => at === 0,
      processes: () => PROCESSES,
      source: `process-${at}`,
      now: () => time.now,
      after: (ms, run) => time.after(ms, run),
    });
    return shares.namespace.getByName('project:x');
  });
  let refused = 0;
  let number = 0;
  const ask = (at: number) => {
    const name = `r${number++}`;
    const before = calls;
    const asked = {
      name,
      keyId: 'k',
      key: undefined,
      project: limits,
      bodyBytes: 400,
      maxTokens: 100,
      counts: 'answer',
    } as const;
    const reserve = async () => {
      const verdict = await processes[at]?.reserve(asked);
      if (verdict?.granted !== true) return refused++;
      grants.push({ at: time.now, local: at === 0 || calls === before });
      // The agent's tunnel may be in any process.
      time.after(RESPONSE_MS, () => {
        const settled = processes[number % PROCESSES]?.settle('s', [{ position: 1, settlement: { name } as never }]);
        neverRejects(settled ?? Promise.resolve());
      });
      return grants.length;
    };
    neverRejects(reserve());
    time.after((-Math.log(1 - random()) * 1_000) / rate, () => ask(at));
  };
  for (let at = 0; at < PROCESSES; at++) time.after(random() * 100, () => ask(at));
  await time.until(minutes * MINUTE_MS);
  return { grants, refused, limiter, time, used: () => months.get(` ${MONTH}`) ?? 0, now };
}

/** The most grants in any interval of a minute. */
function mostInMinute(grants: readonly { at: number }[]): number {
  let [from, most] = [0, 0];
  for (const [to, { at }] of grants.entries()) {
    while ((grants[from]?.at ?? at) <= at - MINUTE_MS) from++;
    most = Math.max(most, to - from + 1);
  }
  return most;
}

test('under a limit of requests, requests wait for no other process, and the limit holds within 2 %', async () => {
  const limit = 6_000;
  const idle = await simulate({ limits: { requests_per_minute: limit }, rate: 15, minutes: 2 });
  expect(idle.refused).toBe(0);
  const remote = idle.grants.filter(({ local }) => !local).length;
  expect(remote / idle.grants.length).toBeLessThan(0.02);
  const busy = await simulate({ limits: { requests_per_minute: limit }, rate: 60, minutes: 3 });
  expect(busy.refused).toBeGreaterThan(1_000);
  expect(mostInMinute(busy.grants)).toBeLessThanOrEqual(limit);
  const last = busy.grants.filter(({ at }) => at > 2 * MINUTE_MS).length;
  expect(last).toBeGreaterThanOrEqual(limit * 0.98);
});

test('a limit of tokens a minute holds within 2 %, with few calls', async () => {
  const limit = 1_000_000;
  const { grants, refused } = await simulate({ limits: { tokens_per_minute: limit }, rate: 40, minutes: 3 });
  expect(refused).toBeGreaterThan(1_000);
  const tokens = mostInMinute(grants) * (USED.prompt + USED.completion);
  expect(tokens).toBeLessThanOrEqual(limit * 1.02);
  const last = grants.filter(({ at }) => at > 2 * MINUTE_MS).length * (USED.prompt + USED.completion);
  expect(last).toBeGreaterThanOrEqual(limit * 0.98);
  expect(grants.filter(({ local }) => !local).length / grants.length).toBeLessThan(0.3);
});

test('a monthly budget is used up within 2 % and never passed by more', async () => {
  const limit = 1_000_000;
  const { refused, used, time } = await simulate({ limits: { tokens_per_month: limit }, rate: 40, minutes: 1 });
  expect(refused).toBeGreaterThan(1_000);
  await time.until(2 * MINUTE_MS);
  expect(used()).toBeLessThanOrEqual(limit * 1.02);
  expect(used()).toBeGreaterThanOrEqual(limit * 0.98);
});

test('reports that are lost, or whose answers are lost, count each request once', async () => {
  const { grants, limiter, now, used } = await simulate({
    limits: { requests_per_minute: 100_000, tokens_per_month: 1e9 },
    rate: 20,
    minutes: 0.8,
    lost: 0.3,
  });
  const uses = limiter.uses({ keyId: 'k', key: undefined, project: { requests_per_minute: 100_000 } }, now());
  const counted = uses.project.find(({ limit }) => limit === 'requests_per_minute')?.used ?? 0;
  // Leases that are not used yet count, too.
  expect(counted).toBeGreaterThanOrEqual(grants.length - 40);
  expect(counted).toBeLessThanOrEqual(grants.length + 100_000 * 0.02);
  expect(used()).toBeLessThanOrEqual(grants.length * (USED.prompt + USED.completion));
});

test('a small limit, and one of concurrent requests, is exact: the owner is asked for each request', async () => {
  for (const limits of [{ requests_per_minute: 40 }, { concurrent_requests: 1_000_000, requests_per_minute: 6_000 }]) {
    const { grants } = await simulate({ limits, rate: 10, minutes: 1 });
    expect(mostInMinute(grants)).toBeLessThanOrEqual(limits.requests_per_minute);
    expect(grants.filter(({ local }) => local).length).toBeLessThan(grants.length * 0.5);
  }
});
