/** When a layout changes, when it waits, and when it stays. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { balance } from '../../../scheduler/assignment/demand-assignment.ts';
import { candidateLayouts } from '../../../scheduler/follow/candidate-layouts.ts';
import { loadsText } from '../../../scheduler/follow/describe-loads.ts';
import { type FollowProblem, type ReplicaOption, TRACE_DEMAND } from '../../../scheduler/follow/follow-problem.ts';
import { Decider } from '../../../scheduler/follow/switch-decision.ts';
import { demandShares, transitionCost } from '../../../scheduler/follow/transition-cost.ts';
import { demand, OPTIONS, problem } from './support.ts';

const BEFORE = [24, 6];
const AFTER = [6, 24];
const decide = (confirm = 1, margin = 0.1) => new Decider({ confirm, margin });

test('a flip that is three slots away is waited for, and the switch comes before it', async () => {
  const decider = decide(2);
  const flipIn = (slots: number) => Array.from({ length: 6 }, (_, step) => (step < slots ? BEFORE : AFTER));
  const kinds: string[] = [];
  for (let left = 4; left >= 0; left--) {
    const { kind, why, next } = await decider.decide(problem(flipIn(left)));
    kinds.push(kind);
    if (kind !== 'keep') expect(why).toContain('m 3 to 1 × TP 2, m 1 to 3 × TP 1 × PP 2');
    if (kind === 'switch') {
      expect(next).toEqual([1, 3]);
      break;
    }
  }
  expect(kinds.at(-1)).toBe('switch');
  // It is ordered no later than in the slot of the flip, and not as soon as it is visible.
  expect(kinds.length).toBeGreaterThanOrEqual(4);
});

test('the waves of a change straddle the flip: the first one is dark for the old mix, the second for the new', () => {
  const [before, after] = [
    [25, 1],
    [1, 25],
  ];
  const flipAt = 4;
  const steps = Array.from({ length: 10 }, (_, step) => (step < flipAt ? before : after));
  const given = problem(steps, { slotS: 3, switchS: 6 });
  const costs = steps.slice(0, 7).map((_, at) => transitionCost(given, [1, 3], at));
  expect(costs.indexOf(Math.min(...costs))).toBe(flipAt - 2);
});

test('a mix that stays changes nothing', async () => {
  expect((await decide().decide(problem([BEFORE, BEFORE, BEFORE]))).kind).toBe('keep');
});

test('a switch that costs more than it saves is left, and the reason says both', async () => {
  const slow = problem([BEFORE, AFTER, BEFORE, BEFORE], { switchS: 400 });
  const { kind, why } = await decide().decide(slow);
  expect(kind).toBe('keep');
  expect(why).toMatch(/best for the forecast|not worth a switch/);
});

test('one slot alone does not change what runs', async () => {
  const decider = decide(2);
  const flipped = problem([AFTER, AFTER, AFTER]);
  expect((await decider.decide(flipped)).kind).toBe('wait');
  expect((await decider.decide(problem([BEFORE, BEFORE, BEFORE]))).kind).toBe('keep');
  expect((await decider.decide(flipped)).kind).toBe('wait');
  expect((await decider.decide(flipped)).kind).toBe('switch');
});

test('slots that wish for opposite changes do not agree on one', async () => {
  const decider = decide(2);
  const wishing = (mix: number[]) => decider.decide(problem([mix, mix, mix], { running: [2, 2] }));
  const kinds = [(await wishing(BEFORE)).kind, (await wishing(AFTER)).kind, (await wishing(BEFORE)).kind];
  expect(kinds).toEqual(['wait', 'wait', 'wait']);
  expect((await wishing(BEFORE)).layout).toEqual([3, 1]);
});

test('where nothing runs, what is asked for is started at once', async () => {
  const found = await decide(2).decide(problem([BEFORE, BEFORE], { running: [0, 0] }));
  expect(found.kind).toBe('switch');
  expect(found.layout[0]).toBeGreaterThan(found.layout[1] ?? 0);
});

test('where nothing runs and there is room for less than is asked for, what fits is started all the same', async () => {
  const found = await decide(2, 0.9).decide(problem([[60, 60]], { running: [0, 0] }));
  expect([found.kind, found.stayCost - found.bestCost < 0.9 * found.stayCost]).toEqual(['switch', true]);
});

test('however much more is asked for than fits, where nothing runs, all that fits is started at once', async () => {
  for (const times of [1, 3, 10, 1_000]) {
    const steps = Array.from({ length: 5 }, () => [24 * times, 6 * times]);
    const { kind, layout } = await decide(2).decide(problem(steps, { running: [0, 0] }));
    expect([times, kind, layout]).toEqual([times, 'switch', [3, 1]]);
  }
});

test('a replica that needs many minutes for a response is still better than none', async () => {
  const slow = OPTIONS.map((one) => ({ ...one, rates: [0.02, 0.01], latencyS: [900, 1_800] }));
  const found = await decide(2).decide(problem([[0.01, 0.01]], { options: slow, running: [0, 0] }));
  expect(found.kind).toBe('switch');
});

test('a node that is lost is planned without, one that is gained is used', async () => {
  const lost = await decide().decide(
    problem([BEFORE, BEFORE], { running: [2, 1], pools: [{ id: 'p', gpus: 6, replicas: 3 }] }),
  );
  expect(lost.layout.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(3);
  const busy = BEFORE.map((one) => one * 1.5);
  const gained = await decide().decide(problem([busy, busy], { pools: [{ id: 'p', gpus: 12, replicas: 6 }] }));
  expect(gained.kind).toBe('switch');
  expect(gained.layout.reduce((sum, one) => sum + one, 0)).toBeGreaterThan(4);
});

test('a pin is kept whatever comes, and brought about where it does not run', async () => {
  const steps = [AFTER, AFTER, AFTER];
  const pinned = (pin: number[], running: number[]) => problem(steps, { running, models: [demand(steps, { pin })] });
  expect((await decide().decide(pinned([3, 1], [3, 1]))).kind).toBe('keep');
  const ordered = await decide(2).decide(pinned([2, 2], [3, 1]));
  expect([ordered.kind, ordered.layout]).toEqual(['switch', [2, 2]]);
});

test('a layout that fits on no node is none', async () => {
  const tiny = problem([BEFORE], { pools: [{ id: 'p', gpus: 1, replicas: 1 }], running: [0, 0] });
  expect(await candidateLayouts(tiny)).toEqual([]);
  expect((await decide().decide(tiny)).kind).toBe('keep');
});

const rate = fc.double({ min: 0, max: 200, noNaN: true });
const steps = fc.array(fc.tuple(rate, rate), { minLength: 1, maxLength: 4 });
const layouts = fc.tuple(fc.nat(4), fc.nat(4)).filter(([a, b]) => a + b <= 4);

test('whatever is expected, a decision fits on the nodes, and costs no more than staying', async () => {
  await fc.assert(
    fc.asyncProperty(steps, layouts, async (expected, running) => {
      const given = problem(expected, { running });
      const found = await decide().decide(given);
      expect(found.layout.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(4);
      expect(found.bestCost).toBeLessThanOrEqual(transitionCost(given, running, undefined));
      expect(Number.isFinite(found.stayCost)).toBe(true);
    }),
    { numRuns: 40 },
  );
});

const servedRate = fc.double({ min: 0.01, max: 20, noNaN: true });
const latency = fc.double({ min: 0.01, max: 5_000, noNaN: true });
const ways = fc.tuple(servedRate, servedRate, latency, latency, fc.boolean());

test('to serve something never costs more than to serve nothing, and no more now than later', () => {
  fc.assert(
    fc.property(steps, layouts, fc.tuple(ways, ways), (expected, to, own) => {
      const options = OPTIONS.map((one, i): ReplicaOption => {
        const [a, b, first = 1, second = 1, both] = own[i] ?? [];
        return { ...one, rates: [a ?? 1, both ? (b ?? 1) : 0], latencyS: [first, second] };
      });
      const given = problem(expected, { options, running: [0, 0] });
      const costs = expected.map((_, at) => transitionCost(given, to, at));
      costs.push(transitionCost(given, given.running, undefined));
      // Kinds without expected requests count with a trace of the demand, if they can be served.
      const most = (cost: number) => cost * (1 + 10 * TRACE_DEMAND) + 1e-9;
      for (const [at, cost] of costs.entries()) expect(cost).toBeLessThanOrEqual(most(costs[at + 1] ?? cost));
    }),
  );
});

test('a backlog does not vanish while no replica serves', () => {
  const steps = Array.from({ length: 4 }, () => [30, 30]);
  // All replicas change at the same time, in the last slot, for replicas that are as fast.
  const [first] = OPTIONS;
  const options = first === undefined ? [] : [first, { ...first, place: { ...first.place, tp: 1 } }];
  const given = problem(steps, { options, running: [4, 0], wave: 4 });
  expect(transitionCost(given, [0, 4], 3)).toBeGreaterThan(transitionCost(given, [4, 0], undefined));
});

test('over several models and kinds of GPUs a layout serves as much as the best of all, up to what leaves room', async () => {
  const quick = fc.double({ min: 0.1, max: 20, noNaN: true });
  const pairs = (of: typeof rate) => fc.array(fc.tuple(of, of), { minLength: 4, maxLength: 4 });
  await fc.assert(
    fc.asyncProperty(pairs(quick), fc.tuple(quick, quick, quick, quick), async (rates, [a, b, c, d]) => {
      const options = rates.map((own, i): ReplicaOption => {
        const place = { model: i < 2 ? 'a' : 'b', pool: i % 2 === 0 ? 'x' : 'y', tp: 1 };
        return { place, gpus: 1, rates: own, latencyS: own.map((one) => 1 / one) };
      });
      const models = [demand([[a, b]], { model: 'a' }), demand([[c, d]], { model: 'b' })];
      const pools = [
        { id: 'x', gpus: 3, replicas: 3 },
        { id: 'y', gpus: 2, replicas: 2 },
      ];
      const given = problem([], { options, pools, models, running: [0, 0, 0, 0] });
      /** The multiple of the whole demand that it can serve. */
      const times = (layout: readonly number[]) =>
        1 / Math.max(...models.map(({ mean }, m) => loadOf(m === 0 ? [0, 1] : [2, 3], layout, mean[0] ?? [])));
      const loadOf = (own: number[], layout: readonly number[], wanted: readonly number[]) =>
        balance({
          rates: own.map((i) => rates[i] ?? []),
          replicas: own.map((i) => layout[i] ?? 0),
          demand: wanted,
        }).load;
      const whole = (most: number) =>
        Array.from({ length: most + 1 }, (_, i) => i).flatMap((i) =>
          Array.from({ length: most - i + 1 }, (_, j) => [i, j] as const),
        );
      const all = whole(3).flatMap(([ax, bx]) =>
        whole(2).map(([ay, by]) => (ax + ay > 0 && bx + by > 0 ? times([ax, ay, bx, by]) : 0)),
      );
      const [found = []] = await candidateLayouts(given);
      const [ax = 0, ay = 0, bx = 0, by = 0] = found;
      expect(Math.max(ax + bx - 3, ay + by - 2)).toBeLessThanOrEqual(0);
      expect(times(found)).toBeGreaterThanOrEqual(Math.min(1 / 0.75, 0.99 * Math.max(...all)) * 0.999);
    }),
    { numRuns: 15, seed: 29 },
  );
});

test('a decision says how full replicas are and with what, how much more they can do, and what the bottleneck is', () => {
  const steps = [BEFORE, AFTER];
  const said = (of: Parameters<typeof loadsText>[2], more: Partial<FollowProblem> = {}) =>
    loadsText(problem(steps, more), demand(steps), of);
  const now =
    '3 × TP 2 80 % full (prompts 24.00/s); 1 × TP 1 × PP 2 60 % full (answers 6.00/s); they can do 1.26 times that; the bottleneck is TP 2: with one more 1.67 times';
  expect(said({ next: undefined, inSlots: 0 })).toBe(now);
  const then = said({ next: [1, 3], inSlots: 1 });
  expect(then).toContain(`${now}. After the change: 1 × TP 2 60 % full (prompts 6.00/s)`);
  expect(then).toContain('the bottleneck is TP 1 × PP 2');
  expect(said({ next: undefined, inSlots: 0 }, { running: [1, 3] })).toContain('times that, so a queue grows');
  expect(said({ next: [3, 1], inSlots: 0 }, { running: [0, 0] })).toContain('nothing serves it. After the change: 3 ×');
  const [first] = OPTIONS;
  const unable = first === undefined ? [] : [{ ...first, rates: [10, 0] }];
  expect(said({ next: undefined, inSlots: 0 }, { options: unable, running: [3] })).toContain(
    'no replica can hold answers',
  );
});

test('every kind has a place to go, also one that is not expected', () => {
  for (const expected of [
    [10, 0],
    [0, 10],
    [0, 0.001],
  ]) {
    const { assignment } = demandShares(problem([expected]), demand([expected]), [2, 2], expected);
    for (const served of assignment.served) expect(served).toBeGreaterThan(0);
  }
  expect(OPTIONS).toHaveLength(2);
});
