/** OPT-30B on a node of eight H100, with two kinds of requests. Their engines can be simulated. */
import { RateTable } from '../../../scheduler/assignment/rate-table.ts';
import { findGpu, findModel, loadCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import { withDatasheetMemory } from '../../../scheduler/catalogue/datasheet-memory.ts';
import type { FollowProblem, ForecastDemand, Layout } from '../../../scheduler/follow/follow-problem.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import { fitKinds } from '../../../scheduler/workload/request-kinds.ts';

const catalogue = withDatasheetMemory(loadCatalogue());
const model = findModel(catalogue, 'facebook/opt-30b');
const GPUS = 8;
/** Long prompts with short answers, and short prompts with long answers. */
export const LENGTHS = [
  { input: 1400, output: 12 },
  { input: 200, output: 300 },
] as const;
export const kinds = fitKinds(
  LENGTHS.flatMap((one) => new Array(50).fill(one)),
  { most: 2, seed: 1 },
);
const site = { model, gpu: findGpu(catalogue, 'h100'), gpus: GPUS, gpusPerNode: GPUS };
const table = new RateTable(site, kinds, catalogue.calibration, DEFAULT_LIMITS);
export const options = table.shapes.map(({ shape: { tp, pp }, rates, latencyS }) => ({
  place: { model: model.id, pool: 'p', tp, ...(pp === 1 ? {} : { spread: { tp, pp } }) },
  gpus: tp * pp,
  rates,
  latencyS,
  engine: { step: table.step({ tp, pp }), limits: DEFAULT_LIMITS },
}));
const at = (tp: number, pp: number) => table.shapes.findIndex(({ shape }) => shape.tp === tp && shape.pp === pp);
export const layoutOf = (...groups: [tp: number, pp: number, replicas: number][]): Layout =>
  table.shapes.map((_, i) => groups.find(([tp, pp]) => at(tp, pp) === i)?.[2] ?? 0);

export function problemOf(
  rates: readonly number[],
  running: Layout,
  more: Partial<ForecastDemand> = {},
): FollowProblem {
  const steps = Array.from({ length: 5 }, () => rates);
  const examples = kinds.map((kind) => kind.examples);
  const demand = { model: model.id, kinds: kinds.map(({ name }) => name), mean: steps, high: steps, examples, ...more };
  const pools = [{ id: 'p', gpus: GPUS, replicas: GPUS }];
  return { options, pools, models: [demand], running, slotS: 60, switchS: 10, wave: GPUS };
}

/** As if rates were measured. */
export const withoutEngines = (problem: FollowProblem): FollowProblem => ({
  ...problem,
  options: options.map(({ engine: _, ...option }) => option),
});
