import type { Random } from '../../../../scheduler/simulator/random.ts';
import { torta } from '../../micro/torta.ts';
import type { RunResult } from '../../simulator/recorder.ts';
import { simulateRegions } from '../../simulator/simulate.ts';
import { DEFAULT_LOAD, PoissonTasks, SLOT_S } from '../../simulator/workload.ts';
import type { World } from '../../world/world.ts';
import { smoothed } from '../forecast.ts';
import { DEFAULT_WEIGHTS } from '../problem.ts';
import { type Decision, residualPlanner } from './planner.ts';
import { type ResidualPolicy, samples } from './residual-policy.ts';

/** What a slot's tasks cost, seconds: the mean response of each origin's tasks, and the electricity of all tasks. */
interface SlotCosts {
  responseS: Float64Array;
  tasks: Float64Array;
  /** Mean response plus electricity per task, in seconds of the planner's weights. */
  allS: number;
}

export interface Rollout {
  regions: number;
  decisions: Decision[];
  /** By slot. */
  costs: SlotCosts[];
  result: RunResult;
}

export interface RolloutOptions {
  world: World;
  seed: number;
  slots: number;
  policy: ResidualPolicy;
  /** Absent: the mean action is played. */
  random?: Random;
}

/**
 * Plays the policy in the event simulator with the micro layer. A task's response is counted when it gets its server:
 * network, queue and computation are known then, so that a slot's costs are those of its decision.
 */
export async function rollOut({ world, seed, slots, policy, random }: RolloutOptions): Promise<Rollout> {
  const regions = world.topology.regions.length;
  const [decisions, costs]: [Decision[], SlotCosts[]] = [[], []];
  let open: SlotCosts | undefined;
  const close = (costUsd: number) => {
    if (open === undefined) return;
    const { tasks, responseS } = open;
    const all = Math.max(
      1,
      tasks.reduce((sum, one) => sum + one, 0),
    );
    open.allS = (responseS.reduce((sum, one) => sum + one, 0) + DEFAULT_WEIGHTS.secondsPerUsd * costUsd) / all;
    for (let origin = 0; origin < regions; origin++)
      responseS[origin] = (responseS[origin] ?? 0) / Math.max(1, tasks[origin] ?? 0);
    costs.push(open);
  };
  const macro = residualPlanner(policy, {
    ...(random === undefined ? {} : { play: (shapes: Float64Array) => samples(shapes, random) }),
    decided: (decision, { costUsd = 0 }) => {
      close(costUsd);
      decisions.push(decision);
      open = { responseS: new Float64Array(regions), tasks: new Float64Array(regions), allS: 0 };
    },
  });
  const source = new PoissonTasks(world, { slots, slotS: SLOT_S, seed, load: DEFAULT_LOAD });
  const result = await simulateRegions({
    world,
    source,
    slots,
    slotS: SLOT_S,
    policy: torta({
      macro,
      forecast: smoothed(world),
      chosen(job, server, delayS, cluster) {
        if (open === undefined) return;
        const { origin, arrivalS } = job.task;
        const network = 2 * cluster.latencyS(origin, server.region);
        const seconds = cluster.nowS - arrivalS + network + delayS + cluster.serviceS(server, job);
        open.responseS[origin] = (open.responseS[origin] ?? 0) + seconds;
        open.tasks[origin] = (open.tasks[origin] ?? 0) + 1;
      },
    }),
  });
  // The last slot's electricity is not measured: the mean of all slots.
  close(result.costUsd / slots);
  return { regions, decisions, costs, result };
}
