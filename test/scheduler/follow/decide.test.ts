/** When a layout changes, when it waits, and when it stays. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { courseCost, sharesOf } from '../../../scheduler/follow/course.ts';
import { Decider } from '../../../scheduler/follow/decide.ts';
import { candidateLayouts } from '../../../scheduler/follow/layouts.ts';
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
  // It is ordered no later than in the slot of the flip, and not as soon as it is seen.
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
  const costs = steps.slice(0, 7).map((_, at) => courseCost(given, [1, 3], at));
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

test('where nothing runs, what is asked for is started at once', async () => {
  const found = await decide(2).decide(problem([BEFORE, BEFORE], { running: [0, 0] }));
  expect(found.kind).toBe('switch');
  expect(found.layout[0]).toBeGreaterThan(found.layout[1] ?? 0);
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
      expect(found.bestCost).toBeLessThanOrEqual(courseCost(given, running, undefined));
      expect(Number.isFinite(found.stayCost)).toBe(true);
    }),
    { numRuns: 40 },
  );
});

test('every kind has a place to go, also one that is not expected', () => {
  for (const expected of [
    [10, 0],
    [0, 10],
    [0, 0.001],
  ]) {
    const { assignment } = sharesOf(problem([expected]), demand([expected]), [2, 2], expected);
    for (const served of assignment.served) expect(served).toBeGreaterThan(0);
  }
  expect(OPTIONS).toHaveLength(2);
});
