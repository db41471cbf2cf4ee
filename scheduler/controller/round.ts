import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import { SchedulerError } from '../errors.ts';
import type { PlannerGateway } from '../live/gateway.ts';
import { inventoryOf, type LiveNode, liveNetwork } from '../live/nodes.ts';
import type { Plan, Planner } from '../planner/types.ts';
import type { Parallelism } from '../roofline/parallelism.ts';
import { OptionTable, parallelismsTried } from '../solver/options.ts';
import type { Demand, Placement, PlanOptions, Pool } from '../solver/problem.ts';
import { type Action, isSamePlace, type ReplicaPlace, replicaPlace, spreadText } from './actions.ts';
import type { AgentSide } from './agents.ts';
import { type ControllerState, EMPTY_STATE } from './state.ts';

/** Everything a round acts with. */
export interface Controller {
  gateway: PlannerGateway;
  catalogue: HardwareCatalogue;
  planner: Planner;
  options: PlanOptions;
  /** Starts replicas on agents that wait for deployments. */
  agents: AgentSide;
  /** Wall clock, ms. */
  now: () => number;
  log: (line: string) => void;
}

/** The network as it is: jobs of ours and nodes of others. */
export interface Observation {
  state: ControllerState;
  nodes: LiveNode[];
  /** Serving nodes that this controller did not start. */
  others: LiveNode[];
  idle: LiveNode[];
  /** Where this controller may start replicas. */
  pools: Pool[];
  /** What happened since the last look. */
  events: string[];
}

/** Jobs that ended unasked are counted as failures of their placement; a node that serves clears its placement's. */
export async function observe(controller: Controller, state: ControllerState): Promise<Observation> {
  const { gateway, catalogue, log, agents } = controller;
  const { nodes, deployments } = await liveNetwork(gateway, catalogue, log);
  const states = agents.states(state.jobs, deployments);
  const events: string[] = [];
  let failures = state.failures;
  const jobs = state.jobs.flatMap((job) => {
    const { model, pool } = job;
    if (states.get(job.id) === 'gone') {
      const count = (failures.find((one) => isSamePlace(one, job))?.count ?? 0) + 1;
      failures = [...failures.filter((one) => !isSamePlace(one, job)), { ...replicaPlace(job), count }];
      const why = deployments.failed.get(job.id);
      const ended = why === undefined ? 'ended unasked' : `failed: ${why}`;
      events.push(`${what(job)} of ${model} on ${pool} ${ended} (${count} in a row)`);
      return [];
    }
    const serving = nodes.some((node) => isOf(node, job) && node.models.length > 0);
    if (serving) failures = failures.filter((one) => !isSamePlace(one, job));
    return [{ ...job, seen: job.seen || serving }];
  });
  const foreign = nodes.filter((node) => !state.jobs.some((job) => isOf(node, job)));
  const now = { ...state, jobs, failures };
  return {
    state: now,
    nodes,
    others: foreign.filter(({ models }) => models.length > 0),
    idle: foreign.filter(({ models, deployment }) => models.length === 0 && deployment === undefined),
    pools: await agents.pools(nodes, now),
    events,
  };
}

type Job = ControllerState['jobs'][number];

const isOf = (node: LiveNode, { id }: Job) => node.job === id || node.deployment === id;
const what = (job: Pick<Job, 'id'>) => `deployment ${job.id}`;

/** The network as it is. Deployments of a factory may be moved by a plan, all other nodes are counted on. */
export async function lookAt({ gateway, catalogue, log, agents }: Controller): Promise<Observation> {
  const { nodes } = await liveNetwork(gateway, catalogue, log);
  const state = { ...EMPTY_STATE, jobs: await agents.deployed(nodes) };
  const foreign = nodes.filter((node) => !state.jobs.some((job) => isOf(node, job)));
  return {
    state,
    nodes,
    others: foreign.filter(({ models }) => models.length > 0),
    idle: foreign.filter(({ models, deployment }) => models.length === 0 && deployment === undefined),
    pools: await agents.pools(nodes, state),
    events: [],
  };
}

/** What the launcher's pools and others' serving nodes are to serve. Others' nodes are counted on, and never changed. */
export async function replan(
  controller: Controller,
  observation: Observation,
  workload: readonly Demand[],
): Promise<{ plan: Plan; wanted: Placement[]; impossible: string[] }> {
  const asked = observation.others.filter(({ models }) =>
    workload.some(({ model }) => models.some((name) => sameModel(name, model.id))),
  );
  const network = inventoryOf(asked, controller.catalogue, controller.log, workload);
  const rename = (pool: string) => `network: ${pool}`;
  const pools = [...observation.pools, ...network.pools.map((pool) => ({ ...pool, id: rename(pool.id) }))];
  const own = new Set(observation.pools.map(({ id }) => id));
  const runs = grouped(observation.state);
  const { placeable, impossible } = placeableOf(workload, pools, controller.options);
  const current: Placement[] = [
    ...runs.filter(({ pool }) => own.has(pool)),
    ...network.running.map((one) => ({ ...one, pool: rename(one.pool), pinned: true })),
  ].filter((one) => placeable.some(({ model }) => model.id === one.model));
  if (placeable.length === 0) throw new SchedulerError('infeasible', impossible.join('\n'));
  const plan = await controller.planner(pools, placeable, current, {
    catalogue: controller.catalogue,
    options: controller.options,
  });
  const wanted = plan.placements
    .filter(({ pool }) => own.has(pool))
    .map((one) => ({ ...replicaPlace(one), replicas: one.replicas }));
  // Of a pool that nobody shows at this moment nothing is known, so what runs there is wanted as it is.
  return { plan, wanted: [...wanted, ...runs.filter(({ pool }) => !own.has(pool))], impossible };
}

/** One model that fits nowhere, or that no node's operator allows, must not keep the others from being placed. */
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

/** Any tensor parallelism, also one that the model does not divide into: then the model is why, not the templates. */
const triedOn = (demand: Demand, pool: Pool): Parallelism[] => [
  ...Array.from({ length: 72 }, (_, i) => ({ tp: i + 1 })),
  ...parallelismsTried(demand, pool),
];

const sameModel = (name: string, id: string) => name === id || id.endsWith(`/${name}`);

function grouped({ jobs }: ControllerState): Placement[] {
  const placements: Placement[] = [];
  for (const job of jobs) {
    const known = placements.find((one) => isSamePlace(one, job));
    if (known) known.replicas++;
    else placements.push({ ...replicaPlace(job), replicas: 1 });
  }
  return placements;
}

interface Applied {
  state: ControllerState;
  done: string[];
  failed: string[];
  /** Starts for which a node has to drain first: a later round tries again. */
  later: string[];
}

/**
 * Does the actions one by one; `save` is called after each, so that a controller that dies remembers every job it started. A failed
 * one is reported and the others are still done.
 */
export async function act(
  controller: Controller,
  state: ControllerState,
  actions: readonly Action[],
  save: (state: ControllerState) => void,
): Promise<Applied> {
  let now = state;
  const done: string[] = [];
  const failed: string[] = [];
  const later: string[] = [];
  const counted: Action[] = [];
  for (const action of actions) {
    try {
      now = action.kind === 'start' ? await start(controller, now, action) : await stop(controller, now, action);
      save(now);
      done.push(describe(action));
    } catch (error) {
      if (error instanceof SchedulerError && error.code === 'draining') {
        later.push(`${describe(action)}: ${error.message}`);
        continue;
      }
      failed.push(`${describe(action)}: ${error instanceof Error ? error.message : String(error)}`);
      // Nodes that refuse count once a round, however many were asked.
      if (action.kind === 'stop' || counted.some((one) => isSamePlace(one, action))) continue;
      counted.push(action);
      now = withFailure(now, action);
      save(now);
    }
  }
  return { state: now, done, failed, later };
}

/** Nodes that refuse are asked three times, as jobs that end are started: then a person has to look. */
function withFailure(state: ControllerState, place: ReplicaPlace): ControllerState {
  const known = state.failures.find((one) => isSamePlace(one, place));
  const others = state.failures.filter((one) => one !== known);
  return { ...state, failures: [...others, { ...replicaPlace(place), count: (known?.count ?? 0) + 1 }] };
}

async function start(
  controller: Controller,
  state: ControllerState,
  action: Extract<Action, { kind: 'start' }>,
): Promise<ControllerState> {
  const { model, pool, tp, spread = { tp } } = action;
  const id = await controller.agents.start(pool, model, spread);
  const job = { id, ...replicaPlace(action), started_at: new Date(controller.now()).toISOString(), seen: false };
  return { ...state, jobs: [...state.jobs, job] };
}

async function stop(
  { agents }: Controller,
  state: ControllerState,
  action: Extract<Action, { kind: 'stop' }>,
): Promise<ControllerState> {
  await agents.stop(action.job, action.pool);
  return { ...state, jobs: state.jobs.filter(({ id }) => id !== action.job) };
}

export function describe(action: Action): string {
  const place = `${action.model} ${spreadText(action)} on ${action.pool}`;
  return action.kind === 'start'
    ? `start ${place}: ${action.why}`
    : `stop ${what({ id: action.job })}, ${place}: ${action.why}`;
}
