/** Other replicas on the GPUs of a layout. */
import { expect, test } from 'vitest';
import { candidateLayouts } from '../../../scheduler/follow/candidate-layouts.ts';
import type { FollowProblem, ForecastDemand, Layout } from '../../../scheduler/follow/follow-problem.ts';
import { LayoutCosts } from '../../../scheduler/follow/layout-costs.ts';
import { Decider } from '../../../scheduler/follow/switch-decision.ts';
import { layoutOf, options, problemOf, withoutEngines } from './simulated-site.ts';

const NOTHING = layoutOf();
const gpusOf = (layout: Layout) => layout.reduce((sum, count, i) => sum + count * (options[i]?.gpus ?? 0), 0);
const replicasOf = (layout: Layout) => layout.reduce((sum, count) => sum + count, 0);

test('candidates are also other replicas, on no more GPUs than the load needs', async () => {
  for (const rates of [
    [2, 1],
    [20, 10],
  ]) {
    const problem = problemOf(rates, NOTHING);
    const program = await candidateLayouts(withoutEngines(problem));
    const all = await candidateLayouts(problem);
    expect(all.slice(0, program.length)).toEqual(program);
    expect(all.length).toBeGreaterThan(program.length);
    expect(new Set(all.map(String)).size).toBe(all.length);
    expect(Math.max(...all.map(gpusOf))).toBe(Math.max(...program.map(gpusOf)));
  }
});

test('a node that runs one engine gets no second one', async () => {
  const problem = problemOf([20, 10], NOTHING);
  const nodes: FollowProblem = { ...problem, pools: [{ id: 'p', gpus: 8, replicas: 4 }] };
  const program = await candidateLayouts(withoutEngines(nodes));
  const most = Math.max(...program.map(replicasOf));
  for (const layout of await candidateLayouts(nodes)) expect(replicasOf(layout)).toBeLessThanOrEqual(most);
});

test('a pin and a replica that no plan can change stay', async () => {
  const running = layoutOf([2, 1, 2]);
  const pinned = problemOf([20, 10], running, { pin: running });
  expect(await candidateLayouts(pinned)).toEqual([running]);
  const fixed = { ...problemOf([20, 10], running), options: options.map((option) => ({ ...option, fixed: true })) };
  expect(await candidateLayouts(fixed)).toEqual([running]);
});

test('the planner orders the layout that responds sooner on the same GPUs', async () => {
  const problem = problemOf([20, 10], NOTHING);
  const decider = () => new Decider({ margin: 0.1, confirm: 2 });
  const by = async (given: FollowProblem) => (await decider().decide(given)).layout;
  const [averages, simulated] = [await by(withoutEngines(problem)), await by(problem)];
  expect(gpusOf(simulated)).toBeLessThanOrEqual(gpusOf(averages));
  // Averages order pipelines, in which long prompts delay the tokens of others.
  const hasStages = (layout: Layout) => layout.some((count, i) => count > 0 && options[i]?.place.spread !== undefined);
  expect([hasStages(averages), hasStages(simulated)]).toEqual([true, false]);
});

test('the search ends where a model has too many layouts', async () => {
  const problem = problemOf([2_000, 1_000], NOTHING);
  const large: FollowProblem = { ...problem, pools: [{ id: 'p', gpus: 4_096, replicas: 4_096 }] };
  expect((await candidateLayouts(large)).length).toBeGreaterThan(0);
});

test('layouts of a model are ranked without the costs of other models', async () => {
  const alone = problemOf([20, 10], NOTHING);
  const other = { ...alone.models[0], model: 'measured', kinds: ['all'], examples: undefined };
  let reads = 0;
  const measured = {
    ...other,
    mean: [[1]],
    get high() {
      reads++;
      return [[1]];
    },
  } as unknown as ForecastDemand;
  const place = { model: 'measured', pool: 'other', tp: 1 };
  const problem: FollowProblem = {
    ...alone,
    options: [...alone.options, { place, gpus: 1, rates: [10], latencyS: [1] }],
    pools: [...alone.pools, { id: 'other', gpus: 1, replicas: 1 }],
    models: [...alone.models, measured],
    running: [...NOTHING, 0],
  };
  const layouts = await candidateLayouts(problem);
  expect(layouts.length).toBeGreaterThan(12);
  expect(layouts.every((layout) => layout.at(-1) === 1)).toBe(true);
  // The integer program reads the forecast once per layout, not once per alternative.
  expect(reads).toBeLessThan(10);
});

test('a decision computes the averages of a layout once', () => {
  let reads = 0;
  const problem = problemOf([20, 10], NOTHING);
  const costs = new LayoutCosts(
    {
      ...problem,
      get slotS() {
        reads++;
        return problem.slotS;
      },
    },
    5,
  );
  const layouts = [layoutOf([2, 1, 4]), layoutOf([4, 1, 2])];
  const first = costs.best(layouts);
  const before = reads;
  expect(costs.best(layouts)).toEqual(first);
  // Only the costs of the running layout, once per model.
  expect(reads - before).toBeLessThan(before / layouts.length / 2);
});
