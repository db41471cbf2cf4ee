import { writeFileSync } from 'node:fs';
import { type Flags, parseLine } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { planFromCounts } from '../planner/plan-from-counts.ts';
import { type Prediction, predict } from '../planner/predict-plan.ts';
import type { Plan } from '../planner/types.ts';
import { parallelismText } from '../roofline/parallelism.ts';
import { equalSplit, memoryProportional } from '../solver/baselines.ts';
import { OptionTable } from '../solver/option-table.ts';
import { percent, table } from '../validate/text-table.ts';
import { type Bars, barsSvg, barsText } from './bar-chart.ts';
import { planExit } from './exit-codes.ts';
import { textFlag } from './flags.ts';
import { PLANNING_FLAGS, planFromFlags } from './plan-from-flags.ts';
import { prettyJson } from './pretty-json.ts';

export interface ComparedPlan {
  name: string;
  plan: Plan;
  prediction: Prediction;
}

export const COMPARE_FLAGS = {
  ...PLANNING_FLAGS,
  svg: { value: 'FILE', takes: 'file', help: 'write a picture to this file' },
} as const satisfies Flags;

/**
 * `otela-plan compare`: simulates three plans with the same requests: the planner's plan, a plan with GPUs in
 * proportion to requests times parameters (memP in OpenTela's paper), and a plan with equally many GPUs for each model.
 */
export async function compareCommand(argv: readonly string[], io: Io): Promise<number> {
  const flags = parseLine(argv, COMPARE_FLAGS).values;
  const { inventory, workload, options, durationS, plan: ours } = await planFromFlags(flags, io, 1);
  const optionTable = new OptionTable(workload, inventory.pools, options);
  const baselines = {
    'by size': await memoryProportional(optionTable.options, workload, inventory.pools),
    'equal parts': await equalSplit(optionTable.options, workload, inventory.pools),
  };
  const plans: [string, Plan][] = [['ours', ours]];
  for (const [name, counts] of Object.entries(baselines))
    plans.push([name, planFromCounts(name, optionTable, counts, workload, inventory.pools)]);
  const compared = plans.map(
    ([name, plan]): ComparedPlan => ({
      name,
      plan,
      prediction: predict(plan, inventory.pools, workload, options, durationS),
    }),
  );
  const svg = textFlag(flags, 'svg');
  if (svg !== undefined) writeFileSync(svg, barsSvg(panels(compared)));
  io.out(
    flags.json === true
      ? prettyJson(
          compared.map(({ name, plan, prediction }) => ({
            name,
            placements: plan.placements,
            servedShare: plan.servedShare,
            ...prediction,
            models: undefined,
          })),
        )
      : comparisonText(compared),
  );
  return planExit(ours);
}

export function panels(compared: readonly ComparedPlan[]): Bars[] {
  const bars = (title: string, unit: string, more: boolean, of: (one: ComparedPlan) => number): Bars => ({
    title,
    unit,
    more,
    values: compared.map((one) => ({ name: one.name, value: of(one) })),
  });
  return [
    bars('Throughput', 'requests/s', true, ({ prediction }) => prediction.requestsPerS),
    bars('Mean latency', 's', false, ({ prediction }) => prediction.meanS),
    bars('P95 latency', 's', false, ({ prediction }) => prediction.p95S),
  ];
}

/** A plan that answers no request has no latency. */
const seconds = (value: number) => (Number.isFinite(value) ? value.toFixed(2) : '-');

export function comparisonText(compared: readonly ComparedPlan[]): string {
  const allocation = table(
    ['plan', 'model', 'replicas'],
    compared.flatMap(({ name, plan }) =>
      plan.models.map(({ model }) => [
        name,
        model,
        plan.placements
          .filter((one) => one.model === model)
          .map(
            (one) =>
              `${one.replicas} × ${one.gpus ?? one.tp} GPUs of ${one.pool}${one.spread ? `, ${parallelismText(one.spread)}` : ''} (${percent(one.share)})`,
          )
          .join(', ') || 'none',
      ]),
    ),
  );
  const result = table(
    ['plan', 'requests/s', 'mean s', 'P95 s', 'last response s', 'could serve', 'kWh'],
    compared.map(({ name, plan, prediction }) => [
      name,
      prediction.requestsPerS.toFixed(2),
      seconds(prediction.meanS),
      seconds(prediction.p95S),
      prediction.drainS.toFixed(0),
      percent(plan.servedShare),
      (prediction.energyJ / 3.6e6).toFixed(2),
    ]),
  );
  return `${allocation}\n\n${result}\n\n${barsText(panels(compared))}`;
}
