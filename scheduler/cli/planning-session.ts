/** The common part of both forms of `otela-plan watch`: opens the gateway, loads the planner and reads the demand. */
import type { Io } from '../../shared/terminal/command-io.ts';
import { DeploymentDescriptions } from '../live/agent-pools.ts';
import type { PlacementNode } from '../live/live-nodes.ts';
import { liveWorkload } from '../live/live-workload.ts';
import type { PlanningContext } from '../live/observation.ts';
import { gatewayFrom } from '../live/planner-gateway.ts';
import { loadPlanner } from '../planner/load-planner.ts';
import { readWorkload } from '../planner/read-input.ts';
import type { Demand } from '../solver/planning-problem.ts';
import {
  applyWorkloadFlags,
  CATALOGUE_FLAGS,
  catalogueFrom,
  ENGINE_FLAGS,
  type FlagValues,
  PLAN_FLAGS,
  planOptionsFrom,
  requiredFlag,
  textFlag,
} from './flags.ts';

export const SESSION_FLAGS = {
  ...CATALOGUE_FLAGS,
  ...ENGINE_FLAGS,
  ...PLAN_FLAGS,
  workload: { value: 'FILE', takes: 'file', help: 'file with the demand' },
  gateway: { value: 'URL', help: 'URL of the gateway' },
  'key-file': { value: 'FILE', takes: 'file', help: "file with an operator's API key" },
  window: { value: '1h', help: 'time window of the demand from the gateway' },
} as const;

/** Access to the outside, which tests replace. */
export interface Outside {
  now?: () => number;
  fetch?: typeof fetch;
}

export interface PlanningSession {
  context: PlanningContext;
  workload(nodes: readonly PlacementNode[]): Promise<Demand[]>;
}

export async function sessionFrom(flags: FlagValues, io: Io, outside: Outside): Promise<PlanningSession> {
  const catalogue = catalogueFrom(flags);
  const gateway = gatewayFrom(requiredFlag(flags, 'gateway'), textFlag(flags, 'key-file'), outside.fetch);
  const workloadFile = textFlag(flags, 'workload');
  const context: PlanningContext = {
    gateway,
    catalogue,
    planner: await loadPlanner(textFlag(flags, 'planner')),
    options: planOptionsFrom(flags, catalogue, io.log),
    descriptions: new DeploymentDescriptions(gateway),
    now: outside.now ?? Date.now,
    log: io.log,
  };
  return {
    context,
    workload: async (nodes) =>
      applyWorkloadFlags(
        flags,
        workloadFile === undefined
          ? await liveWorkload(gateway, catalogue, textFlag(flags, 'window') ?? '10m', io.log, nodes)
          : readWorkload(workloadFile, catalogue),
        catalogue,
      ),
  };
}
