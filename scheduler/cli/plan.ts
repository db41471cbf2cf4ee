import { writeFileSync } from 'node:fs';
import type { ParseArgsOptionsConfig } from 'node:util';
import { SchedulerError } from '../errors.ts';
import { predict } from '../planner/predict.ts';
import { planExit } from './exit.ts';
import { readFlags, text } from './flags.ts';
import { type Io, json } from './io.ts';
import { planSvg } from './plan-picture.ts';
import { PLANNING_FLAGS, planned } from './planned.ts';
import { planText, whyText } from './show.ts';

export const FLAGS = { ...PLANNING_FLAGS, svg: { type: 'string' } } as const satisfies ParseArgsOptionsConfig;

/** `otela-plan plan` */
export async function planCommand(argv: readonly string[], io: Io): Promise<number> {
  const flags = readFlags(argv, FLAGS);
  const { inventory, workload, options, durationS, plan } = await planned(flags, io);
  const rate = workload.reduce((sum, demand) => sum + demand.rate, 0);
  if (rate * durationS > 5_000_000)
    throw new SchedulerError(
      'usage',
      `${Math.round(rate * durationS)} requests would be simulated; give a shorter --duration (0 simulates none)`,
    );
  const prediction = durationS > 0 ? predict(plan, inventory.pools, workload, options, durationS) : undefined;
  const svg = text(flags, 'svg');
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
    io.out(json({ ...rest, simulated }));
  } else {
    io.out(planText(plan, prediction));
    io.out(`\nwhy\n${whyText(plan)}`);
  }
  return planExit(plan);
}
