/** Makes a plan for agents that take deployments. It includes the replicas that other nodes serve. */
import { SchedulerError } from '../errors.ts';
import type { Plan } from '../planner/types.ts';
import type { Parallelism } from '../roofline/parallelism.ts';
import { OptionTable, parallelismsTried } from '../solver/option-table.ts';
import type { Demand, Placement, PlanOptions, Pool } from '../solver/planning-problem.ts';
import { groupReplicas, replicaPlace } from '../solver/replica-place.ts';
import { inventoryOf } from './live-nodes.ts';
import type { Observation, PlanningContext } from './observation.ts';

interface Replanned {
  plan: Plan;
  /** Replicas that should run on agents. */
  wanted: Placement[];
  /** For each model that is not in the plan, the reason. */
  impossible: string[];
}

/** @throws SchedulerError `infeasible` if no model fits */
export async function replan(
  context: PlanningContext,
  observation: Observation,
  workload: readonly Demand[],
): Promise<Replanned> {
  const asked = observation.others.filter(({ models }) =>
    workload.some(({ model }) => models.some((name) => sameModel(name, model.id))),
  );
  const network = inventoryOf(asked, context.catalogue, context.log, workload);
  const rename = (pool: string) => `network: ${pool}`;
  const pools = [...observation.pools, ...network.pools.map((pool) => ({ ...pool, id: rename(pool.id) }))];
  const own = new Set(observation.pools.map(({ id }) => id));
  const runs = groupReplicas(observation.deployed);
  const { placeable, impossible } = placeableOf(workload, pools, context.options);
  const current: Placement[] = [
    ...runs,
    ...network.running.map((one) => ({ ...one, pool: rename(one.pool), pinned: true })),
  ].filter((one) => placeable.some(({ model }) => model.id === one.model));
  if (placeable.length === 0) throw new SchedulerError('infeasible', impossible.join('\n'));
  const { catalogue, options } = context;
  const plan = await context.planner(pools, placeable, current, { catalogue, options });
  const wanted = plan.placements
    .filter(({ pool }) => own.has(pool))
    .map((one) => ({ ...replicaPlace(one), replicas: one.replicas }));
  return { plan, wanted, impossible };
}

/**
 * Leaves out models that fit nowhere or that no template allows, because they must not prevent the placement of the
 * others.
 */
function placeableOf(
  workload: readonly Demand[],
  pools: readonly Pool[],
  options: PlanOptions,
): { placeable: Demand[]; impossible: string[] } {
  const impossible: string[] = [];
  const placeable = workload.filter((demand) => {
    const allowed = pools.filter(
      (pool) =>
        pool.allows === undefined ||
        triedOn(demand, pool).some((spread) => pool.allows?.(demand.model.id, spread) === true),
    );
    if (allowed.length === 0) {
      impossible.push(
        `${demand.model.id}: ${pools.length === 0 ? 'there is no node' : 'no template of any node allows it'}`,
      );
      return false;
    }
    try {
      new OptionTable([demand], allowed, options);
      return true;
    } catch (error) {
      if (!(error instanceof SchedulerError) || error.code !== 'infeasible') throw error;
      impossible.push(error.message);
      return false;
    }
  });
  return { placeable, impossible };
}

/**
 * Includes tensor parallelisms that do not divide the model, so that the message blames the model and not the
 * templates.
 */
const triedOn = (demand: Demand, pool: Pool): Parallelism[] => [
  ...Array.from({ length: 72 }, (_, i) => ({ tp: i + 1 })),
  ...parallelismsTried(demand, pool),
];

const sameModel = (name: string, id: string): boolean => name === id || id.endsWith(`/${name}`);
