import { expect, test } from 'vitest';
import type { FollowProblem, ForecastDemand } from '../../../scheduler/follow/follow-problem.ts';
import { addConfusion, groupedProblem } from '../../../scheduler/follow/judged-groups.ts';
import { MODEL, World } from './world.ts';

const demand: ForecastDemand = { model: 'm', kinds: ['answers', 'prompts'], mean: [[2, 6]], high: [[4, 8]] };
const other: ForecastDemand = { ...demand, model: 'other' };
const option = (model: string, rates: number[], latencyS = [1, 3]) => ({
  place: { model, pool: 'a', tp: 1 },
  gpus: 1,
  rates,
  latencyS,
});
const problem: FollowProblem = {
  options: [option('m', [1, 10]), option('other', [1, 10]), option('m', [0, 10])],
  pools: [],
  models: [demand, other],
  running: [1, 1, 1],
  slotS: 60,
  switchS: 60,
  wave: 1,
};
const MIXED = [
  [30, 70],
  [10, 90],
];

test('a group has as many requests as are judged to be of it', () => {
  const { models } = groupedProblem(problem, demand, MIXED);
  expect(models[0]?.mean[0]?.[0]).toBeCloseTo(2 * 0.3 + 6 * 0.1);
  expect((models[0]?.mean[0]?.[0] ?? 0) + (models[0]?.mean[0]?.[1] ?? 0)).toBeCloseTo(8);
  expect((models[0]?.high[0]?.[0] ?? 0) + (models[0]?.high[0]?.[1] ?? 0)).toBeCloseTo(12);
  expect(models[1]).toBe(other);
});

test('the rate of a group is that of its mix, which changes with the demand', () => {
  const { options } = groupedProblem(problem, demand, MIXED);
  // 0.6 and 0.6 requests/s in the first group, 1.4 and 5.4 in the second one.
  expect(options[0]?.rates[0]).toBeCloseTo(1 / (0.5 / 1 + 0.5 / 10));
  expect(options[0]?.rates[1]).toBeCloseTo(6.8 / (1.4 / 1 + 5.4 / 10));
  expect(options[0]?.latencyS[0]).toBeCloseTo(2);
  expect(options[1]).toBe(problem.options[1]);
  const answers = { ...demand, mean: [[6, 0]] };
  const flipped = groupedProblem({ ...problem, models: [answers] }, answers, MIXED);
  expect(flipped.options[0]?.rates).toEqual([1, 1]);
});

test('a replica that cannot serve a kind serves no group that contains it', () => {
  const exact = [
    [60, 0],
    [0, 60],
  ];
  expect(groupedProblem(problem, demand, MIXED).options[2]?.rates).toEqual([0, 0]);
  expect(groupedProblem(problem, demand, exact).options[2]?.rates).toEqual([0, 10]);
});

test('too few judged requests and those of other kinds change nothing', () => {
  expect(
    groupedProblem(problem, demand, [
      [20, 0],
      [0, 20],
    ]),
  ).toBe(problem);
  expect(groupedProblem(problem, demand, [[500]])).toBe(problem);
});

test('later counts outweigh earlier ones, and those of other kinds are forgotten', () => {
  const added = Array.from({ length: 300 }).reduce<ReturnType<typeof addConfusion>>(
    (before) =>
      addConfusion(
        before,
        [
          [0, 1],
          [0, 1],
        ],
        2,
      ),
    [
      [1_000, 0],
      [1_000, 0],
    ],
  );
  const [row = []] = added ?? [];
  expect((row[0] ?? 0) / ((row[0] ?? 0) + (row[1] ?? 0))).toBeLessThan(0.1);
  expect(addConfusion([[9]], MIXED, 2)).toEqual(MIXED);
  expect(addConfusion(MIXED, [], 2)).toBeUndefined();
});

/** How many times the demand two replicas of each shape can serve, as the last decision says. */
async function canDo(confusion: number[][]): Promise<number> {
  const replicas = [
    { tp: 2, pp: 1, count: 2 },
    { tp: 1, pp: 2, count: 2 },
  ];
  const world = new World({ pins: [{ model: MODEL, replicas }] });
  world.confusion = confusion;
  world.arrivals = () => [300, 300];
  await world.run(6);
  return Number(/they can do ([\d.]+) times/.exec(world.last?.why ?? '')?.[1]);
}

test('replicas for kinds can do less if the gateway cannot tell the kinds apart', async () => {
  const apart = await canDo([
    [500, 0],
    [0, 500],
  ]);
  expect(apart).toBeGreaterThan(3);
  expect(await canDo([])).toBeCloseTo(apart, 1);
  // Each replica serves both kinds: 2 × 1.83 + 2 × 2 of 10 requests/s.
  expect(
    await canDo([
      [10, 490],
      [10, 490],
    ]),
  ).toBeCloseTo(0.77, 1);
});
