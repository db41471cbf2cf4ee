import type { ParseArgsOptionsConfig } from 'node:util';
import type { Catalogue } from '../catalogue/catalogue.ts';
import { SchedulerError } from '../errors.ts';
import { gatewayFrom } from '../live/gateway.ts';
import { liveInventory, liveWorkload } from '../live/observed.ts';
import { type Inventory, readInventory, readWorkload } from '../planner/input.ts';
import { loadPlanner } from '../planner/load.ts';
import { predict } from '../planner/predict.ts';
import type { Plan } from '../planner/types.ts';
import type { Demand } from '../solver/problem.ts';
import { EXIT_DONE, EXIT_INFEASIBLE, EXIT_TIME_OUT } from './exit.ts';
import {
  CATALOGUE_FLAGS,
  catalogueFrom,
  ENGINE_FLAGS,
  type Flags,
  number,
  PLAN_FLAGS,
  planOptionsFrom,
  readFlags,
  required,
  text,
} from './flags.ts';
import { type Io, json } from './io.ts';
import { planText, whyText } from './show.ts';

export const SOURCE_FLAGS = {
  inventory: { type: 'string' },
  workload: { type: 'string' },
  live: { type: 'boolean' },
  gateway: { type: 'string' },
  'key-file': { type: 'string' },
  window: { type: 'string' },
} as const;

/** Inventory and workload from files, or from a gateway where `--live`; a file overrides the live half. */
export async function sources(
  flags: Flags,
  catalogue: Catalogue,
  io: Io,
): Promise<{ inventory: Inventory; workload: Demand[] }> {
  if (flags.live !== true) {
    return {
      inventory: readInventory(required(flags, 'inventory'), catalogue),
      workload: readWorkload(required(flags, 'workload'), catalogue),
    };
  }
  const gateway = gatewayFrom(required(flags, 'gateway'), text(flags, 'key-file'));
  const [inventoryFile, workloadFile] = [text(flags, 'inventory'), text(flags, 'workload')];
  const inventory =
    inventoryFile === undefined
      ? await liveInventory(gateway, catalogue, io.log)
      : readInventory(inventoryFile, catalogue);
  const workload =
    workloadFile === undefined
      ? await liveWorkload(gateway, catalogue, text(flags, 'window') ?? '1h', io.log)
      : readWorkload(workloadFile, catalogue);
  return { inventory, workload };
}

export const FLAGS = {
  ...CATALOGUE_FLAGS,
  ...ENGINE_FLAGS,
  ...PLAN_FLAGS,
  ...SOURCE_FLAGS,
  duration: { type: 'string' },
  json: { type: 'boolean' },
} as const satisfies ParseArgsOptionsConfig;

/** `otela-plan plan` */
export async function planCommand(argv: readonly string[], io: Io): Promise<number> {
  const flags = readFlags(argv, FLAGS);
  const catalogue = catalogueFrom(flags);
  const options = planOptionsFrom(flags, catalogue, io.log);
  const { inventory, workload } = await sources(flags, catalogue, io);
  const planner = await loadPlanner(text(flags, 'planner'));
  const plan = await planner(inventory.pools, workload, inventory.running, { catalogue, options });
  const durationS = number(flags, 'duration', 300, { max: 86_400 });
  const rate = workload.reduce((sum, demand) => sum + demand.rate, 0);
  if (rate * durationS > 5_000_000)
    throw new SchedulerError(
      'usage',
      `${Math.round(rate * durationS)} requests would be simulated; give a shorter --duration (0 simulates none)`,
    );
  const prediction = durationS > 0 ? predict(plan, inventory.pools, workload, options, durationS) : undefined;
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

export function planExit(plan: Plan): number {
  if (plan.infeasible !== undefined) return EXIT_INFEASIBLE;
  return plan.report?.status === 'time-limit' ? EXIT_TIME_OUT : EXIT_DONE;
}
