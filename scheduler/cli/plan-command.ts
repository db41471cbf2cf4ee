import { writeFileSync } from 'node:fs';
import { type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { predict } from '../planner/predict-plan.ts';
import { planExit } from './exit-codes.ts';
import { textFlag } from './flags.ts';
import { PLANNING_FLAGS, planFromFlags } from './plan-from-flags.ts';
import { planSvg } from './plan-picture.ts';
import { planText, whyText } from './plan-text.ts';
import { prettyJson } from './pretty-json.ts';

export const PLAN_COMMAND_FLAGS = {
  ...PLANNING_FLAGS,
  svg: { value: 'FILE', takes: 'file', help: 'write a picture to this file' },
} as const satisfies Flags;

/** `otela-plan plan`: prints a plan. */
export async function planCommand(argv: readonly string[], io: Io): Promise<number> {
  const flags = parseLine(argv, PLAN_COMMAND_FLAGS).values;
  const { inventory, workload, options, durationS, plan } = await planFromFlags(flags, io);
  const rate = workload.reduce((sum, demand) => sum + demand.rate, 0);
  if (rate * durationS > 5_000_000)
    throw new UsageError(
      `${Math.round(rate * durationS)} requests are too many to simulate; give a shorter --duration (0: no simulation)`,
    );
  const prediction = durationS > 0 ? predict(plan, inventory.pools, workload, options, durationS) : undefined;
  const svg = textFlag(flags, 'svg');
  if (svg !== undefined) writeFileSync(svg, planSvg(plan));
  if (flags.json === true) {
    const { pick: _, ...rest } = plan;
    const simulated = prediction && {
      ...prediction,
      models: prediction.models.map(({ model, result }) => ({
        model,
        ...(result === undefined ? {} : { ...result, latencies: undefined }),
      })),
    };
    io.out(prettyJson({ ...rest, simulated }));
  } else {
    io.out(planText(plan, prediction));
    io.out(`\nwhy\n${whyText(plan)}`);
  }
  return planExit(plan);
}
