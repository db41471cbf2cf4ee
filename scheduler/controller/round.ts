import type { Catalogue } from '../catalogue/catalogue.ts';
import type { Gateway } from '../live/gateway.ts';
import { inventoryOf, type LiveNode, liveNodes } from '../live/observed.ts';
import type { Inventory } from '../planner/input.ts';
import type { Plan, Planner } from '../planner/types.ts';
import type { Demand, Placement, PlanOptions } from '../solver/problem.ts';
import { type Action, type Differences, differences, same } from './actions.ts';
import type { Launcher } from './launcher.ts';
import type { ControllerState } from './state.ts';
import { render } from './template.ts';

/** Everything a round acts with. */
export interface Controller {
  gateway: Gateway;
  catalogue: Catalogue;
  planner: Planner;
  options: PlanOptions;
  launcher: Launcher;
  /** Pools that the launcher may use. */
  inventory: Inventory;
  template: string;
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
  /** What happened since the last look. */
  events: string[];
}

/** Jobs that ended unasked are counted as failures of their placement; a node that serves clears its placement's. */
export async function observe(controller: Controller, state: ControllerState): Promise<Observation> {
  const nodes = await liveNodes(controller.gateway, controller.catalogue, controller.log);
  const states = await controller.launcher.states(state.jobs.map(({ id }) => id));
  const events: string[] = [];
  let failures = state.failures;
  const jobs = state.jobs.flatMap((job) => {
    const { model, pool, tp } = job;
    if (states.get(job.id) === 'gone') {
      const count = (failures.find((one) => same(one, job))?.count ?? 0) + 1;
      failures = [...failures.filter((one) => !same(one, job)), { model, pool, tp, count }];
      events.push(`job ${job.id} of ${model} on ${pool} ended unasked (${count} in a row)`);
      return [];
    }
    const serving = nodes.some((node) => node.job === job.id && node.models.length > 0);
    if (serving) failures = failures.filter((one) => !same(one, job));
    return [{ ...job, seen: job.seen || serving }];
  });
  const ours = new Set(state.jobs.map(({ id }) => id));
  const foreign = nodes.filter((node) => node.job === undefined || !ours.has(node.job));
  return {
    state: { ...state, jobs, failures },
    nodes,
    others: foreign.filter(({ models }) => models.length > 0),
    idle: foreign.filter(({ models }) => models.length === 0),
    events,
  };
}

/** What the launcher's pools and others' serving nodes are to serve. Others' nodes are counted on, and never changed. */
export async function replan(
  controller: Controller,
  observation: Observation,
  workload: readonly Demand[],
): Promise<{ plan: Plan; wanted: Placement[] }> {
  const asked = observation.others.filter(({ models }) =>
    workload.some(({ model }) => models.some((name) => sameModel(name, model.id))),
  );
  const network = inventoryOf(asked, controller.catalogue, controller.log);
  const rename = (pool: string) => `network: ${pool}`;
  const pools = [...controller.inventory.pools, ...network.pools.map((pool) => ({ ...pool, id: rename(pool.id) }))];
  const current: Placement[] = [
    ...grouped(observation.state),
    ...network.running.map((one) => ({ ...one, pool: rename(one.pool), pinned: true })),
  ].filter((one) => workload.some(({ model }) => model.id === one.model));
  const plan = await controller.planner(pools, workload, current, {
    catalogue: controller.catalogue,
    options: controller.options,
  });
  const own = new Set(controller.inventory.pools.map(({ id }) => id));
  const wanted = plan.placements
    .filter(({ pool }) => own.has(pool))
    .map(({ model, pool, tp, replicas }) => ({ model, pool, tp, replicas }));
  return { plan, wanted };
}

const sameModel = (name: string, id: string) => name === id || id.endsWith(`/${name}`);

function grouped({ jobs }: ControllerState): Placement[] {
  const placements: Placement[] = [];
  for (const { model, pool, tp } of jobs) {
    const known = placements.find((one) => same(one, { model, pool, tp }));
    if (known) known.replicas++;
    else placements.push({ model, pool, tp, replicas: 1 });
  }
  return placements;
}

export interface Applied {
  state: ControllerState;
  done: string[];
  failed: string[];
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
  for (const action of actions) {
    try {
      now = action.kind === 'start' ? await start(controller, now, action) : await stop(controller, now, action);
      save(now);
      done.push(describe(action));
    } catch (error) {
      failed.push(`${describe(action)}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return { state: now, done, failed };
}

async function start(
  controller: Controller,
  state: ControllerState,
  action: Extract<Action, { kind: 'start' }>,
): Promise<ControllerState> {
  const pool = controller.inventory.pools.find(({ id }) => id === action.pool);
  const { model, tp } = action;
  const values = {
    ...pool?.values,
    model,
    tp: String(tp),
    pool: action.pool,
    gpu: pool?.gpu.id ?? '',
    gateway: controller.gateway.url,
  };
  const script = render(controller.template, values);
  const name = `otela-${model.split('/').at(-1)}`.replace(/[^A-Za-z0-9._-]/g, '-').slice(0, 64);
  const id = await controller.launcher.start(script, name);
  const job = { id, model, pool: action.pool, tp, started_at: new Date(controller.now()).toISOString(), seen: false };
  return { ...state, jobs: [...state.jobs, job] };
}

async function stop(
  controller: Controller,
  state: ControllerState,
  action: Extract<Action, { kind: 'stop' }>,
): Promise<ControllerState> {
  await controller.launcher.stop([action.job]);
  return { ...state, jobs: state.jobs.filter(({ id }) => id !== action.job) };
}

export function describe(action: Action): string {
  const place = `${action.model} TP ${action.tp} on ${action.pool}`;
  return action.kind === 'start' ? `start ${place}: ${action.why}` : `stop job ${action.job}, ${place}: ${action.why}`;
}

/** The plan's weights of a model's serving sessions: the share of its pool, split evenly over the pool's nodes. */
export function sessionWeights(
  plan: Plan,
  observation: Observation,
  model: string,
): { session: string; weight: number }[] {
  const jobs = new Map(observation.state.jobs.map((job) => [job.id, job]));
  const serving = observation.nodes.filter((node) => node.models.some((name) => sameModel(name, model)));
  const placed = serving.map((node) => {
    const job = node.job === undefined ? undefined : jobs.get(node.job);
    const [pool, tp] = job === undefined ? [`network: ${node.pool}`, node.gpus] : [job.pool, job.tp];
    return { node, placement: plan.placements.find((one) => same(one, { model, pool, tp })) };
  });
  return placed.flatMap(({ node, placement }) => {
    const alike = placed.filter((other) => other.placement === placement).length;
    return placement === undefined ? [] : [{ session: node.session, weight: placement.share / alike }];
  });
}

export type { Differences };
export { differences };
