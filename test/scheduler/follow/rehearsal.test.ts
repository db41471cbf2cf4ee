/** What a simulation of layouts adds to averages. */
import { expect, test } from 'vitest';
import { RateTable } from '../../../scheduler/assignment/rate-table.ts';
import { findGpu, findModel, loadCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { withDatasheetMemory } from '../../../scheduler/catalogue/datasheet-memory.ts';
import type { FollowProblem, ForecastDemand, Layout } from '../../../scheduler/follow/follow-problem.ts';
import { groupedProblem } from '../../../scheduler/follow/judged-groups.ts';
import { simulatedDifferences } from '../../../scheduler/follow/rehearsal.ts';
import { Decider } from '../../../scheduler/follow/switch-decision.ts';
import { transitionCost } from '../../../scheduler/follow/transition-cost.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import { fitKinds } from '../../../scheduler/workload/request-kinds.ts';

const catalogue = withDatasheetMemory(loadCatalogue());
const model = findModel(catalogue, 'facebook/opt-30b');
const GPUS = 8;
/** Long prompts with short answers, and short prompts with long answers. */
const LENGTHS = [
  { input: 1400, output: 12 },
  { input: 200, output: 300 },
] as const;
const kinds = fitKinds(
  LENGTHS.flatMap((one) => new Array(50).fill(one)),
  { most: 2, seed: 1 },
);
const site = { model, gpu: findGpu(catalogue, 'h100'), gpus: GPUS, gpusPerNode: GPUS };
const table = new RateTable(site, kinds, catalogue.calibration, DEFAULT_LIMITS);
const options = table.shapes.map(({ shape: { tp, pp }, rates, latencyS }) => ({
  place: { model: model.id, pool: 'p', tp, ...(pp === 1 ? {} : { spread: { tp, pp } }) },
  gpus: tp * pp,
  rates,
  latencyS,
  engine: { step: table.step({ tp, pp }), limits: DEFAULT_LIMITS },
}));
const at = (tp: number, pp: number) => table.shapes.findIndex(({ shape }) => shape.tp === tp && shape.pp === pp);
const layoutOf = (...groups: [tp: number, pp: number, replicas: number][]): Layout =>
  table.shapes.map((_, i) => groups.find(([tp, pp]) => at(tp, pp) === i)?.[2] ?? 0);

function problemOf(rates: readonly number[], running: Layout, more: Partial<ForecastDemand> = {}): FollowProblem {
  const steps = Array.from({ length: 5 }, () => rates);
  const examples = kinds.map((kind) => kind.examples);
  const demand = { model: model.id, kinds: kinds.map(({ name }) => name), mean: steps, high: steps, examples, ...more };
  const pools = [{ id: 'p', gpus: GPUS, replicas: GPUS }];
  return { options, pools, models: [demand], running, slotS: 60, switchS: 10, wave: GPUS };
}

/** As if rates were measured. */
const withoutEngines = (problem: FollowProblem): FollowProblem => ({
  ...problem,
  options: options.map(({ engine: _, ...option }) => option),
});

const PAIRS = layoutOf([2, 1, 4]);
const STAGED = layoutOf([2, 2, 2]);
const NOTHING = layoutOf();

test('a simulation decides between layouts that averages rank in the other order', () => {
  const problem = { ...problemOf([40, 5], PAIRS), switchS: 0 };
  const decide = (given: FollowProblem) => new Decider({ margin: 0.1, confirm: 1 }).choose(given, [STAGED]).kind;
  const [pairs = 0, staged = 0] = simulatedDifferences(problem, [PAIRS, STAGED]);
  const averages = (layout: Layout) => transitionCost({ ...problem, running: layout }, layout, undefined);
  expect(averages(STAGED)).toBeLessThan(0.9 * averages(PAIRS));
  expect(averages(STAGED) + staged).toBeGreaterThan(2 * (averages(PAIRS) + pairs));
  expect(decide(withoutEngines(problem))).toBe('switch');
  expect(decide(problem)).toBe('keep');
});

test('an order of the first replicas is of the layout that is simulated best', () => {
  const problem = problemOf([20, 10], NOTHING);
  const candidates = [layoutOf([8, 1, 1]), PAIRS, STAGED];
  const differences = simulatedDifferences(problem, [NOTHING, ...candidates]);
  expect(differences[0]).toBe(0);
  expect(differences.slice(1).every((one) => one !== 0)).toBe(true);
  expect(new Decider({ margin: 0.1, confirm: 2 }).choose(problem, candidates).kind).toBe('switch');
});

test('nothing is simulated if rates are measured, if a kind has no replica, or if replicas are equal', () => {
  const problem = problemOf([20, 10], PAIRS);
  const none = [0, 0];
  expect(simulatedDifferences(withoutEngines(problem), [PAIRS, STAGED])).toEqual(none);
  const unserved = { ...problem, options: options.map((option) => ({ ...option, rates: [option.rates[0] ?? 0, 0] })) };
  expect(simulatedDifferences(unserved, [PAIRS, STAGED])).toEqual(none);
  expect(simulatedDifferences(problem, [PAIRS, PAIRS])).toEqual(none);
  expect(simulatedDifferences(problemOf([0, 0], PAIRS), [PAIRS, STAGED])).toEqual(none);
});

test('a simulation of any load has a bounded number of requests', () => {
  const begun = performance.now();
  const differences = simulatedDifferences(problemOf([1e6, 1e6], PAIRS), [PAIRS, STAGED]);
  expect(differences.every(Number.isFinite)).toBe(true);
  expect(performance.now() - begun).toBeLessThan(60_000);
});

test('groups of misjudged requests are simulated with the lengths of their kinds', () => {
  const problem = problemOf([20, 10], PAIRS);
  const [demand] = problem.models;
  if (demand === undefined) throw new Error('no model');
  // A quarter of the first kind is judged to be of the second.
  const confusion = [
    [75, 25],
    [0, 100],
  ];
  const examples = groupedProblem(problem, demand, confusion).models[0]?.examples ?? [];
  const long = examples.map((own) => own.filter(({ input }) => input === LENGTHS[0].input).length / own.length);
  const ofFirst = kinds[0]?.examples[0]?.input === LENGTHS[0].input;
  expect(long[ofFirst ? 0 : 1]).toBe(ofFirst ? 1 : 20 / 30);
});
