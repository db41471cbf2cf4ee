/** The common part of `plan` and `compare`: makes a plan from the values of flags. */
import { type Flags, JSON_FLAG } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import { liveInventory, liveNodes } from '../live/live-nodes.ts';
import { liveWorkload } from '../live/live-workload.ts';
import { gatewayFrom } from '../live/planner-gateway.ts';
import { loadPlanner } from '../planner/load-planner.ts';
import { type ClusterInventory, readWorkload } from '../planner/read-input.ts';
import type { Plan } from '../planner/types.ts';
import type { Demand, PlanOptions } from '../solver/planning-problem.ts';
import {
  applyWorkloadFlags,
  CATALOGUE_FLAGS,
  catalogueFrom,
  ENGINE_FLAGS,
  type FlagValues,
  numberFlag,
  PLAN_FLAGS,
  planOptionsFrom,
  requiredFlag,
  textFlag,
} from './flags.ts';
import { inventoryFrom } from './inventory.ts';

const SOURCE_FLAGS = {
  inventory: { value: 'FILE|sinfo', takes: 'file', help: 'file with the GPUs, or sinfo' },
  workload: { value: 'FILE', takes: 'file', help: 'file with the demand' },
  live: { help: 'read GPUs and demand from a gateway; --inventory and --workload override them' },
  gateway: { value: 'URL', help: 'URL of the gateway' },
  'key-file': { value: 'FILE', takes: 'file', help: "file with an operator's API key" },
  window: { value: '1h', help: 'time window of the demand from the gateway' },
} as const;

/**
 * Reads inventory and workload from files, or from a gateway with `--live`. A file replaces the inventory or the
 * workload of the live data.
 */
async function sources(
  flags: FlagValues,
  catalogue: HardwareCatalogue,
  io: Io,
): Promise<{ inventory: ClusterInventory; workload: Demand[] }> {
  if (flags.live !== true) {
    return {
      inventory: await inventoryFrom(requiredFlag(flags, 'inventory'), catalogue, io.log),
      workload: readWorkload(requiredFlag(flags, 'workload'), catalogue),
    };
  }
  const gateway = gatewayFrom(requiredFlag(flags, 'gateway'), textFlag(flags, 'key-file'));
  const nodes = await liveNodes(gateway, catalogue, () => {});
  const [inventoryFile, workloadFile] = [textFlag(flags, 'inventory'), textFlag(flags, 'workload')];
  const workload =
    workloadFile === undefined
      ? await liveWorkload(gateway, catalogue, textFlag(flags, 'window') ?? '1h', io.log, nodes)
      : readWorkload(workloadFile, catalogue);
  const inventory =
    inventoryFile === undefined
      ? await liveInventory(gateway, catalogue, io.log, workload)
      : await inventoryFrom(inventoryFile, catalogue, io.log);
  return { inventory, workload };
}

export const PLANNING_FLAGS = {
  ...CATALOGUE_FLAGS,
  ...ENGINE_FLAGS,
  ...PLAN_FLAGS,
  ...SOURCE_FLAGS,
  duration: { value: 'S', otherwise: '300', help: 'seconds to simulate; 0: no simulation' },
  ...JSON_FLAG,
} as const satisfies Flags;

interface Planned {
  inventory: ClusterInventory;
  workload: Demand[];
  options: PlanOptions;
  /** Simulated time, seconds. */
  durationS: number;
  plan: Plan;
}

/** `leastS`: minimum simulated time, seconds. */
export async function planFromFlags(flags: FlagValues, io: Io, leastS = 0): Promise<Planned> {
  const catalogue = catalogueFrom(flags);
  const options = planOptionsFrom(flags, catalogue, io.log);
  const { inventory, workload: asked } = await sources(flags, catalogue, io);
  const workload = applyWorkloadFlags(flags, asked, catalogue);
  const durationS = numberFlag(flags, 'duration', 300, { min: leastS, max: 86_400 });
  const planner = await loadPlanner(textFlag(flags, 'planner'));
  const plan = await planner(inventory.pools, workload, inventory.running, { catalogue, options });
  return { inventory, workload, options, durationS, plan };
}
