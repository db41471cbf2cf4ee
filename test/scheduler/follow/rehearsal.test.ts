/** What a simulation of layouts adds to averages. */
import { expect, test } from 'vitest';
import type { FollowProblem, Layout } from '../../../scheduler/follow/follow-problem.ts';
import { groupedProblem } from '../../../scheduler/follow/judged-groups.ts';
import { simulatedDifferences } from '../../../scheduler/follow/rehearsal.ts';
import { Decider } from '../../../scheduler/follow/switch-decision.ts';
import { transitionCost, unservedSeconds } from '../../../scheduler/follow/transition-cost.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import { kinds, LENGTHS, layoutOf, options, problemOf, withoutEngines } from './simulated-site.ts';

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

test('a request that a replica cannot hold counts as one that no replica can serve', () => {
  const singles = layoutOf([1, 1, 8]);
  // Only long prompts arrive, and no replica on one GPU has memory for one of them.
  const small = options.map((option) => ({
    ...option,
    engine: { ...option.engine, limits: { ...DEFAULT_LIMITS, memoryFraction: option.gpus === 1 ? 0.76 : 0.9 } },
  }));
  const long = kinds.map(({ examples }) => (examples[0]?.input === LENGTHS[0].input ? 10 : 0));
  const problem = { ...problemOf(long, PAIRS), options: small };
  const [demand] = problem.models;
  if (demand === undefined) throw new Error('no model');
  const [pairs, single = 0] = simulatedDifferences(problem, [PAIRS, singles]);
  const total = single + transitionCost({ ...problem, running: singles }, singles, undefined);
  const bound = unservedSeconds(problem, demand)[long.indexOf(10)] ?? 0;
  const requests = 10 * problem.slotS * 5;
  expect(total / (requests * bound)).toBeCloseTo(1, 1);
  expect(pairs).toBe(simulatedDifferences({ ...problem, options }, [PAIRS, singles])[0]);
  expect(pairs).not.toBe(0);
});

test('an example above the context of the model counts as the longest prompt that fits', () => {
  const context = options[0]?.engine.step.deployment.model.context ?? 0;
  const differencesOf = (input: number) => {
    const examples = kinds.map((kind) => [{ input, output: 12 }, ...kind.examples.slice(1)]);
    return simulatedDifferences(problemOf([20, 10], PAIRS, { examples }), [PAIRS, STAGED]);
  };
  expect(context).toBeGreaterThan(0);
  expect(differencesOf(context + 50)).toEqual(differencesOf(context - 1));
  expect(differencesOf(context + 50).every((one) => one !== 0)).toBe(true);
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
