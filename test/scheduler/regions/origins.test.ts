/** Rows of a plan: each region with a gateway has its own shares, and all rows share the regions' capacity. */
import { describe, expect, it } from 'vitest';
import type { RegionFacts } from '../../../scheduler/live/region-facts.ts';
import { mergeOrigins } from '../../../scheduler/regions/live/merge-origins.ts';
import { type LivePlan, LivePlanner } from '../../../scheduler/regions/live/region-planner.ts';
import { Tracker } from '../../../scheduler/regions/live/traffic-tracker.ts';

const SLOT_S = 45;
const BOUNDS = [0.01, 0.3];
const REGIONS = ['ch', 'fi'];

/** What the gateway of `origin` reports after `slots` slots: its region is near, the other is far. */
function facts(origin: string, slots: number, answered: number, replicas = 4, running = 0): RegionFacts[] {
  return REGIONS.map((region) => {
    const count = region === origin ? slots * answered : 0;
    const trips = [region === origin ? slots * 100 : 0, region === origin ? 0 : slots * 100, 0];
    return {
      region,
      nodes: replicas,
      price: { usd_kwh: 0.1, state: 'current' },
      round_trips: { at_most_s: BOUNDS, counts: trips },
      models: [
        {
          model: 'm',
          replicas,
          kinds: [{ gpu: 'H100', gpus: 1, replicas }],
          power: { nodes: 0, watts: 0 },
          running,
          waiting: 0,
          answered: count,
          service_s: 4 * count,
        },
      ],
    };
  });
}

interface Gateway {
  origin: string;
  answered: number;
}

function planned(gateways: readonly Gateway[], slots = 30, replicas = 4): LivePlan {
  const planner = new LivePlanner({ slotS: SLOT_S, secondsPerUsd: 10_000, smoothness: 0.05 });
  const eyes = gateways.map(() => new Tracker({ slotS: SLOT_S, concurrency: 8, watts: () => 700 }));
  let plan: LivePlan = { models: [], notes: [] };
  for (let slot = 1; slot <= slots; slot++) {
    const seen = gateways.map(({ origin, answered }) => facts(origin, slot, answered, replicas));
    const views = eyes.flatMap((one, at) => {
      const observed = one.look(seen[at] ?? []);
      return observed === undefined ? [] : [{ origin: gateways[at]?.origin ?? '', observed }];
    });
    const [first = []] = seen;
    if (views.length === gateways.length) plan = planner.plan(views, first);
  }
  return plan;
}

const rowOf = (plan: LivePlan, origin: string) =>
  plan.models[0]?.origins.find((one) => one.origin === origin)?.shares ?? {};

describe('a plan of two gateways', () => {
  const both = [
    { origin: 'ch', answered: 100 },
    { origin: 'fi', answered: 100 },
  ];

  it('sends the requests of each gateway to the region near it', () => {
    const plan = planned(both);
    expect(rowOf(plan, 'ch').ch).toBeGreaterThan(0.95);
    expect(rowOf(plan, 'fi').fi).toBeGreaterThan(0.95);
    // Gateways without a row get the mean.
    expect(plan.models[0]?.regions.map(({ share }) => share)).toEqual([expect.closeTo(0.5, 1), expect.closeTo(0.5, 1)]);
    expect(plan.models[0]?.expected).toBeCloseTo(200, 6);
  });

  it('divides the capacity of a region among the rows: the busy gateway overflows, the idle one stays', () => {
    // A region serves 324 requests of 4 s per slot at 90 %.
    const plan = planned([
      { origin: 'ch', answered: 500 },
      { origin: 'fi', answered: 50 },
    ]);
    const { ch = 0, fi = 0 } = rowOf(plan, 'ch');
    expect(500 * ch).toBeLessThan(335);
    expect(ch + fi).toBeCloseTo(1, 9);
    expect(rowOf(plan, 'fi').fi).toBeGreaterThan(0.9);
    expect(plan.models[0]?.overload).toBeLessThan(0.02);
  });

  it('says for each row where the share of a lost region goes', () => {
    const origins = planned(both).models[0]?.origins ?? [];
    expect(origins.find(({ origin }) => origin === 'ch')?.spill.ch?.fi).toBeCloseTo(1, 9);
    expect(origins.find(({ origin }) => origin === 'fi')?.spill.fi?.ch).toBeCloseTo(1, 9);
  });

  it('has one row for two gateways of one region', () => {
    const plan = planned([
      { origin: 'ch', answered: 40 },
      { origin: 'ch', answered: 60 },
    ]);
    expect(plan.models[0]?.origins).toHaveLength(1);
    expect(plan.models[0]?.expected).toBeCloseTo(100, 6);
  });
});

it('requests of a planned gateway are not also those of others', () => {
  const place = (own: number, others: number) => ({
    region: 'ch',
    replicas: 4,
    power: { busyW: 595, idleW: 140 },
    answered: 10,
    arrived: 10,
    own,
    others,
    serviceS: 4,
    concurrency: 8,
    waiting: 0,
  });
  const view = (origin: string, own: number, others: number) => ({
    origin,
    observed: {
      models: [{ model: 'm', arrived: 10, places: [place(own, others)] }],
      roundTripS: new Map([['ch', 0.1]]),
    },
  });
  // 20 requests run: 6 of the first gateway, 9 of the second, 5 of a gateway that is not planned.
  expect(mergeOrigins([view('ch', 6, 14), view('fi', 9, 11)])[0]?.places[0]).toMatchObject({ own: 15, others: 5 });
  expect(mergeOrigins([view('ch', 6, 14)])[0]?.places[0]).toMatchObject({ own: 6, others: 14 });
});

it('a provider that names its region like a member of every object changes no other row', () => {
  const planner = new LivePlanner({ slotS: SLOT_S, secondsPerUsd: 10_000, smoothness: 0.05 });
  const place = (region: string) => ({
    region,
    replicas: 1,
    power: { busyW: 595, idleW: 140 },
    answered: 10,
    arrived: 10,
    own: 1,
    others: 0,
    serviceS: 4,
    concurrency: 8,
    waiting: 0,
  });
  const observed = {
    models: [{ model: 'm', arrived: 20, places: [place('__proto__'), place('constructor'), place('ch')] }],
    roundTripS: new Map<string, number>(),
  };
  const plan = planner.plan(
    [
      { origin: 'ch', observed },
      { origin: '__proto__', observed },
    ],
    facts('ch', 1, 1),
  );
  for (const { shares } of plan.models[0]?.origins ?? [])
    expect(Object.entries(shares).reduce((sum, [, share]) => sum + share, 0)).toBeCloseTo(1, 9);
  expect(({} as Record<string, unknown>).ch).toBeUndefined();
});
