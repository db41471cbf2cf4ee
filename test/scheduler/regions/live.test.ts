/** Planning regions from a gateway's data: facts in, shares out, with everything that can be wrong about the facts. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { PlanFile } from '../../../factory/demand/plan-file.ts';
import type { RegionFacts } from '../../../scheduler/live/region-facts.ts';
import { type LivePlan, LivePlanner, type LivePlannerOptions } from '../../../scheduler/regions/live/region-planner.ts';
import { plannablePrices } from '../../../scheduler/regions/live/region-prices.ts';
import { quantile, Tracker } from '../../../scheduler/regions/live/traffic-tracker.ts';
import { writeWarm } from '../../../scheduler/regions/live/warm-plan-files.ts';

const SLOT_S = 45;
const BOUNDS = [0.01, 0.05, 0.1, 0.3];

interface Told {
  replicas?: number;
  price?: number | null;
  state?: string;
  /** Seconds of the round trip, an upper bound; null: never measured. */
  tripS?: number | null;
  answered?: number;
  waiting?: number;
  running?: number;
  /** Mean power that the agents of the region measure, watts; absent: they measure none. */
  watts?: number;
}

/** A gateway's data of regions after `slots` slots: in each slot each region answered `answered` requests of 4 s. */
function facts(slots: number, regions: Record<string, Told>): RegionFacts[] {
  return Object.entries(regions).map(([region, told]) => {
    const {
      replicas = 4,
      price = 0.1,
      state = 'current',
      tripS = 0.05,
      answered = 100,
      waiting = 0,
      running = 0,
      watts,
    } = told;
    const counts = BOUNDS.map((bound) => (bound === tripS ? slots * answered : 0));
    return {
      region,
      nodes: replicas,
      price: { usd_kwh: price, state },
      round_trips: tripS === null ? null : { at_most_s: BOUNDS, counts: [...counts, 0] },
      models: [
        {
          model: 'm',
          replicas,
          kinds: replicas === 0 ? [] : [{ gpu: 'H100', gpus: 1, replicas }],
          power: watts === undefined ? { nodes: 0, watts: 0 } : { nodes: replicas, watts: watts * replicas },
          running,
          waiting,
          answered: slots * answered,
          service_s: slots * answered * 4,
        },
      ],
    };
  });
}

const tracker = () => new Tracker({ slotS: SLOT_S, concurrency: 8, watts: () => 700 });
const options: LivePlannerOptions = { slotS: SLOT_S, secondsPerUsd: 10_000, smoothness: 0.05 };

/** The last plan after `slots` equal slots. */
function planned(
  regions: Record<string, Told>,
  { slots = 30, more = {} }: { slots?: number; more?: Partial<LivePlannerOptions> } = {},
): LivePlan {
  const [eyes, planner] = [tracker(), new LivePlanner({ ...options, ...more })];
  let plan: LivePlan = { models: [], notes: [] };
  for (let slot = 1; slot <= slots; slot++) {
    const seen = facts(slot, regions);
    const observed = eyes.look(seen);
    if (observed !== undefined) plan = planner.plan([{ origin: '', observed }], seen);
  }
  return plan;
}

function sharesOf(plan: LivePlan): Record<string, number> {
  return Object.fromEntries(plan.models[0]?.regions.map(({ region, share }) => [region, share]) ?? []);
}

describe('a plan from facts', () => {
  it('needs two looks, and sends work to where it is near and cheap as far as there is room', () => {
    expect(planned({ near: {} }, { slots: 1 }).models).toEqual([]);
    const plan = planned({ near: { tripS: 0.01, price: 0.15 }, far: { tripS: 0.3, price: 0.05 } });
    const { near = 0, far = 0 } = sharesOf(plan);
    expect(near + far).toBeCloseTo(1, 9);
    // The additional 0.15 s of network cost more than the 0.1 USD/kWh saved.
    expect(near).toBeGreaterThan(0.9);
    const dear = planned(
      { near: { tripS: 0.01, price: 0.15 }, far: { tripS: 0.3, price: 0.05 } },
      { more: { secondsPerUsd: 100_000 } },
    );
    expect(sharesOf(dear).far).toBeGreaterThan(0.9);
    expect(dear.models[0]?.planned.usdPerHour).toBeLessThan(0.6 * (dear.models[0]?.now.usdPerHour ?? 0));
  });

  it('changes shares step by step, the slower the smoother', () => {
    const nearAfter = (slots: number, smoothness: number) =>
      sharesOf(planned({ near: { tripS: 0.01 }, far: { tripS: 0.3 } }, { slots, more: { smoothness } })).near ?? 0;
    expect(nearAfter(2, 0.5)).toBeLessThan(0.75);
    expect(nearAfter(2, 0.05)).toBeGreaterThan(nearAfter(2, 0.5));
    expect(nearAfter(30, 0.5)).toBeGreaterThan(0.95);
  });

  it('spreads by room where the near region has too little', () => {
    const answered = 200; // 1,600 s of answers in a slot; four nodes with eight slots each have 1,296
    const { near = 0, far = 0 } = sharesOf(planned({ near: { tripS: 0.01, answered }, far: { tripS: 0.3, answered } }));
    expect(near).toBeGreaterThan(0.7);
    expect(far).toBeGreaterThan(0.15);
  });

  it('plans where the work of a lost region goes: to all that have room, not all to the nearest', () => {
    const plan = planned({ near: { tripS: 0.01 }, middle: { tripS: 0.05 }, far: { tripS: 0.3 } });
    const spill = plan.models[0]?.spill.near ?? {};
    expect(Object.keys(spill).sort()).toEqual(['far', 'middle']);
    expect(spill.middle).toBeGreaterThan(spill.far ?? 1);
    expect(spill.far).toBeGreaterThan(0.05);
    expect((spill.middle ?? 0) + (spill.far ?? 0)).toBeCloseTo(1, 9);
  });
});

describe('measured power', () => {
  const dear = { more: { secondsPerUsd: 100_000 } };
  /** Half of the slots are in use: the model expects 700 W · (0.2 + 0.65/2) = 367.5 W. */
  const half = { tripS: 0.05, running: 16 };

  it('moves requests to the region whose nodes need less for the same load', () => {
    const even = sharesOf(planned({ a: half, b: half }, dear));
    expect(even.a).toBeCloseTo(0.5, 2);
    const { a = 0 } = sharesOf(planned({ a: { ...half, watts: 250 }, b: { ...half, watts: 450 } }, dear));
    expect(a).toBeGreaterThan(0.9);
  });

  it('is in the cost that a plan reports, idle nodes too', () => {
    const usdPerHour = (watts?: number) =>
      planned({ a: { ...half, ...(watts === undefined ? {} : { watts }) } }, dear).models[0]?.now.usdPerHour ?? 0;
    expect(usdPerHour(367.5)).toBeCloseTo(usdPerHour(), 9);
    expect(usdPerHour(2 * 183.75 * 0.6)).toBeCloseTo(0.6 * usdPerHour(), 9);
  });

  it('that a provider invents counts within bounds', () => {
    const usdPerHour = (watts: number) => planned({ a: { ...half, watts } }, dear).models[0]?.now.usdPerHour ?? 0;
    const usual = usdPerHour(367.5);
    expect(usdPerHour(0)).toBeCloseTo(0.3 * usual, 9);
    expect(usdPerHour(1e9)).toBeCloseTo(1.3 * usual, 9);
  });
});

describe('faults', () => {
  it('a region dies and returns: its share is 0 meanwhile, and it gets work again', () => {
    const [eyes, planner] = [tracker(), new LivePlanner(options)];
    const history: (number | undefined)[] = [];
    for (let slot = 1; slot <= 60; slot++) {
      const dead = slot > 20 && slot <= 40;
      const seen = facts(slot, { near: { tripS: 0.01, replicas: dead ? 0 : 4 }, far: { tripS: 0.3 } });
      const observed = eyes.look(seen);
      if (observed === undefined) continue;
      const shares = sharesOf(planner.plan([{ origin: '', observed }], seen));
      history.push(shares.near);
      if (dead) expect(shares).toEqual({ far: 1 });
    }
    expect(history[15]).toBeGreaterThan(0.9);
    expect(history.at(-1)).toBeGreaterThan(0.9);
  });

  it('negative, stale and missing prices are said, and draw no work', () => {
    const { usdKwh, notes } = plannablePrices(
      facts(1, {
        a: { price: 0.1 },
        b: { price: 0.3 },
        c: { price: -0.4, state: 'negative' },
        d: { price: 9, state: 'stale' },
        e: { price: null, state: 'missing' },
      }),
    );
    expect([...usdKwh.values()]).toEqual([0.1, 0.3, 0, 0.1, 0.1]);
    expect(notes).toEqual([
      'the price of c is negative: assuming 0',
      'the price of d is stale: assuming the median, 0.1 USD/kWh',
      'the price of e is missing: assuming the median, 0.1 USD/kWh',
    ]);
    const even = sharesOf(planned({ a: { price: -5, state: 'negative' }, b: { price: 0 } }));
    expect(even.a).toBeCloseTo(0.5, 2);
  });

  it('without any price the network decides, and that is said', () => {
    const none = { price: null, state: 'missing' };
    const plan = planned({ near: { ...none, tripS: 0.01 }, far: { ...none, tripS: 0.3 } });
    expect(sharesOf(plan).near).toBeGreaterThan(0.9);
    expect(plan.notes).toEqual(['there is no current price: the plan ignores electricity']);
  });

  it.each([10, 0.1, Number.NaN, -1])('a forecast that is wrong by %s neither empties nor floods a region', (factor) => {
    let last = 0;
    const observe = (count: number) => {
      last = count;
    };
    const wrong = () => ({ observe, next: () => last * factor });
    const regions = { near: { tripS: 0.01 }, far: { tripS: 0.3 } };
    const [right, given] = [planned(regions), planned(regions, { more: { forecast: wrong } })];
    const warm = (plan: LivePlan) => plan.models[0]?.regions.reduce((sum, one) => sum + one.warm, 0) ?? 0;
    expect(warm(given)).toBeGreaterThanOrEqual(Math.floor(0.7 * warm(right)));
    expect(warm(given)).toBeLessThanOrEqual(3 * warm(right) + 2);
    const shares = Object.values(sharesOf(given));
    expect(shares.reduce((sum, share) => sum + share, 0)).toBeCloseTo(1, 9);
  });

  it('one region gets everything, and there is nothing to spill to', () => {
    const plan = planned({ only: {} });
    expect(sharesOf(plan)).toEqual({ only: 1 });
    expect(plan.models[0]?.spill).toEqual({});
  });

  it('no capacity anywhere is no plan, and too little is said', () => {
    expect(planned({ near: { replicas: 0 }, far: { replicas: 0 } }).models).toEqual([]);
    const plan = planned({ near: { replicas: 1, answered: 500 }, far: { replicas: 1, answered: 500 } });
    expect(plan.notes.join()).toMatch(/m: \d+ % more load than all regions can serve/);
    expect(Object.values(sharesOf(plan)).every((share) => share > 0.2)).toBe(true);
  });

  it('a region that was never measured counts as far, and that is said', () => {
    const plan = planned({ near: { tripS: 0.01 }, new: { tripS: null } });
    expect(plan.notes.join()).toMatch(/no round trip to new was measured yet/);
  });

  it('a gateway that began to count anew is no negative demand, and one that cannot read its counts is no demand of 0', () => {
    const eyes = tracker();
    eyes.look(facts(50, { near: {} }));
    expect(eyes.look(facts(1, { near: {} }))?.models[0]?.arrived).toBe(100);
    const unread = facts(2, { near: {} }).map((region) => ({
      ...region,
      models: region.models.map((model) => ({ ...model, answered: null, service_s: null })),
    }));
    expect(eyes.look(unread)).toBeUndefined();
  });

  it('what came in the slots that a planner could not look at is spread over them', () => {
    const eyes = tracker();
    eyes.look(facts(1, { near: {} }));
    expect(eyes.look(facts(2, { near: {} }))?.models[0]?.arrived).toBe(100);
    expect(eyes.look(facts(32, { near: {} }), 30 * SLOT_S)?.models[0]?.arrived).toBeCloseTo(100, 9);
    // A clock that was set back.
    expect(eyes.look(facts(33, { near: {} }), -60)?.models[0]?.arrived).toBe(100);
  });

  it('what was answered before a planner knew a region did not come in this slot', () => {
    const eyes = tracker();
    eyes.look(facts(10_000, { near: {} }));
    eyes.look(facts(10_001, { near: {} }));
    // Its nodes are back, and the gateway's counters continue from last week.
    const all = facts(10_002, { near: {}, back: {} });
    const unread = { answered: null, service_s: null };
    const cannotRead = all.map((one) => ({ ...one, models: one.models.map((model) => ({ ...model, ...unread })) }));
    expect(eyes.look(cannotRead)).toBeUndefined();
    const seen = eyes.look(all);
    expect(seen?.models[0]?.arrived).toBe(100);
    expect(seen?.models[0]?.places[1]).toMatchObject({ answered: 0, serviceS: 4 });
    for (const { models } of all) for (const model of models) model.running = 20;
    const [near, back] = eyes.look(all)?.models[0]?.places ?? [];
    // In both regions all running requests count as others'.
    expect(near?.others).toBeGreaterThan(0);
    expect(back?.others).toBeGreaterThan(5);
  });

  it('few answers have a time, too', () => {
    const eyes = tracker();
    eyes.look(facts(1, { near: { answered: 1 } }));
    expect(eyes.look(facts(2, { near: { answered: 1 } }))?.models[0]?.places[0]?.serviceS).toBe(4);
    eyes.look(facts(2, { near: { answered: 1 } }));
    expect(eyes.look(facts(3, { near: { answered: 1 } }))?.models[0]?.places[0]?.serviceS).toBe(4);
  });

  it('queues do not make a region look slow: service times are the least of the last slots', () => {
    const eyes = tracker();
    const told = (answered: number, service_s: number, waiting: number, running: number) =>
      facts(1, { near: {} }).map((region) => ({
        ...region,
        models: region.models.map((model) => ({ ...model, answered, service_s, waiting, running })),
      }));
    eyes.look(told(0, 0, 0, 0));
    expect(eyes.look(told(100, 400, 0, 30))?.models[0]?.places[0]).toMatchObject({ serviceS: 4, concurrency: 8 });
    // Now each answer takes 40 s, most of it in a queue; the queue shows how many requests a node runs concurrently.
    expect(eyes.look(told(200, 4_400, 90, 24))?.models[0]?.places[0]).toMatchObject({ serviceS: 4, concurrency: 6 });
  });
});

describe('planners that disagree', () => {
  it('two gateways with planners of their own that share the regions come to rest', () => {
    // Each sees only its own requests, and the queues of both.
    const sides = [0, 1].map((side) => ({ eyes: tracker(), planner: new LivePlanner(options), near: 0.5, side }));
    const totals = { near: [0, 0], far: [0, 0] };
    const changes: number[] = [];
    for (let slot = 1; slot <= 60; slot++) {
      const load = sides.reduce((sum, { near }) => sum + 250 * near, 0);
      const waiting = Math.max(0, load - 360);
      for (const one of sides) {
        totals.near[one.side] = (totals.near[one.side] ?? 0) + 250 * one.near;
        totals.far[one.side] = (totals.far[one.side] ?? 0) + 250 * (1 - one.near);
        const told = facts(1, { near: { tripS: 0.01, waiting }, far: { tripS: 0.3 } });
        for (const region of told)
          for (const model of region.models) {
            const all = region.region === 'near' ? load : 500 - load;
            model.running = Math.min(32, Math.round((4 * all) / SLOT_S));
            model.answered = Math.round(totals[region.region as 'near' | 'far'][one.side] ?? 0);
            model.service_s = 4 * model.answered;
          }
        const observed = one.eyes.look(told);
        if (observed === undefined) continue;
        const near = sharesOf(one.planner.plan([{ origin: '', observed }], told)).near ?? 0;
        if (slot > 30) changes.push(Math.abs(near - one.near));
        one.near = near;
      }
    }
    expect(Math.max(...changes)).toBeLessThan(0.05);
    const together = sides.reduce((sum, { near }) => sum + near, 0);
    expect(together).toBeGreaterThan(0.9);
    expect(together).toBeLessThan(1.5);
  });
});

describe('warm contexts', () => {
  it('are read by the factory of each region as its plan', () => {
    const folder = mkdtempSync(join(tmpdir(), 'otela-warm-'));
    try {
      const regions = { near: { tripS: 0.01 }, far: { tripS: 0.3 } };
      const plan = planned(regions);
      expect(writeWarm(folder, plan, facts(1, regions))).toEqual([]);
      const source = new PlanFile({ path: join(folder, 'near.json'), maxAge: 60_000, models: ['m'], note: () => {} });
      const wanted = source.latest(Date.now()).demand.get('m')?.wanted?.[0]?.replicas;
      expect(wanted).toBe(plan.models[0]?.regions.find(({ region }) => region === 'near')?.warm);
      expect(wanted).toBeGreaterThan(0);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('are not driven up by one node that claims a million requests now and then', () => {
    const [eyes, planner] = [tracker(), new LivePlanner(options)];
    let warm: number | undefined;
    for (let slot = 1; slot <= 40; slot++) {
      const seen = facts(slot, { near: {}, liar: { replicas: 1, answered: 10 } });
      for (const { region, models } of seen)
        for (const model of models) if (region === 'liar') model.running = slot % 2 === 0 ? 1_000_000 : 0;
      const observed = eyes.look(seen);
      if (observed !== undefined)
        warm = planner
          .plan([{ origin: '', observed }], seen)
          .models[0]?.regions.find(({ region }) => region === 'near')?.warm;
    }
    expect(warm).toBeGreaterThan(0);
    expect(warm).toBeLessThan(8);
  });

  it('are not written where a provider calls its region by a path', () => {
    const folder = mkdtempSync(join(tmpdir(), 'otela-warm-'));
    try {
      const regions = { '../../etc/cron': {}, '..': {}, '': {}, ok: {} };
      const faults = writeWarm(join(folder, 'in'), planned(regions), facts(1, regions));
      expect(faults).toHaveLength(3);
      expect(readdirSync(folder)).toEqual(['in']);
      expect(readdirSync(join(folder, 'in'))).toEqual(['ok.json']);
      expect(JSON.parse(readFileSync(join(folder, 'in/ok.json'), 'utf8'))).toHaveProperty('wanted');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('sleep by long idleness alone, a quarter at a time, and wake at once', () => {
    const [eyes, planner] = [tracker(), new LivePlanner({ ...options, smoothness: 10 })];
    const counts: number[] = [];
    let answered = 0;
    for (let slot = 1; slot <= 40; slot++) {
      answered += slot < 10 || slot > 30 ? 900 : 9;
      const seen = facts(1, { near: { replicas: 16 } });
      for (const { models } of seen)
        for (const model of models) Object.assign(model, { answered, service_s: 4 * answered });
      const observed = eyes.look(seen);
      if (observed !== undefined)
        counts.push(planner.plan([{ origin: '', observed }], seen).models[0]?.regions[0]?.warm ?? 0);
    }
    const falls = counts.map((count, at) => (counts[at - 1] ?? count) - count);
    expect(Math.max(...falls)).toBeLessThanOrEqual(4);
    expect(Math.min(...counts)).toBeLessThan(6);
    expect(counts.at(-1)).toBeGreaterThan(11);
  });
});

it('a quantile is within its bucket', () => {
  expect(quantile([1, 2, 4], [0, 10, 0, 0], 0.5)).toBe(1.5);
  expect(quantile([1, 2, 4], [0, 0, 0, 0], 0.5)).toBeUndefined();
  expect(quantile([1, 2, 4], [0, 0, 0, 5], 0.5)).toBe(4);
});
