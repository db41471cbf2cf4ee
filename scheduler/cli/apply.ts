import { readFileSync } from 'node:fs';
import { EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/io.ts';
import type { Catalogue } from '../catalogue/catalogue.ts';
import { type Differences, differences } from '../controller/actions.ts';
import { Agents } from '../controller/agents.ts';
import { engineValues, templateAllows } from '../controller/engine-arguments.ts';
import { type command, type Launcher, slurmLauncher } from '../controller/launcher.ts';
import {
  act,
  type Controller,
  describe,
  type Observation,
  observe,
  replan,
  type SlurmSide,
} from '../controller/round.ts';
import { type ControllerState, lockState, readState, writeState } from '../controller/state.ts';
import { render } from '../controller/template.ts';
import { SchedulerError } from '../errors.ts';
import { gatewayFrom } from '../live/gateway.ts';
import type { LiveNode } from '../live/nodes.ts';
import { AGENT_POOL } from '../live/offers.ts';
import { liveWorkload } from '../live/workload.ts';
import { readWorkload } from '../planner/input.ts';
import { loadPlanner } from '../planner/load.ts';
import type { Plan } from '../planner/types.ts';
import type { Parallelism } from '../roofline/parallelism.ts';
import type { Demand, Placement } from '../solver/problem.ts';
import { EXIT_BUSY, EXIT_FAILED, EXIT_INFEASIBLE, planExit } from './exit.ts';
import {
  asFlagged,
  CATALOGUE_FLAGS,
  catalogueFrom,
  ENGINE_FLAGS,
  type FlagValues,
  number,
  PLAN_FLAGS,
  planOptionsFrom,
  required,
  text,
} from './flags.ts';
import { inventoryFrom } from './inventory.ts';
import { planText, whyText } from './show.ts';
import { WeightSender } from './weights.ts';

export const APPLY_FLAGS = {
  ...CATALOGUE_FLAGS,
  ...ENGINE_FLAGS,
  ...PLAN_FLAGS,
  inventory: { value: 'FILE|sinfo', takes: 'file', help: 'the GPUs' },
  workload: { value: 'FILE', takes: 'file', help: 'the demand' },
  gateway: { value: 'URL', help: 'the gateway' },
  'key-file': { value: 'FILE', takes: 'file', help: "file with an operator's key" },
  slurm: { value: 'TEMPLATE', takes: 'file', help: 'start jobs on what --inventory offers' },
  agents: { help: 'deploy to agents that wait' },
  drain: { value: 'S', otherwise: '60', help: 'with --agents: seconds for what runs where a replica ends' },
  state: { value: 'FILE', takes: 'file', otherwise: 'otela-plan.state.json', help: 'what was started' },
  weights: { help: 'set the routing weights of the plan' },
  window: { value: '1h', help: 'of the demand that the gateway saw' },
  retry: { help: 'what failed before is tried again' },
  yes: { help: 'do it; without it only said' },
} as const;

/** Replaced in tests. */
export interface Outside {
  launcher?: Launcher;
  /** Until a node that was told to end its deployment is looked for again. */
  pause?: (ms: number) => Promise<unknown>;
  now?: () => number;
  fetch?: typeof fetch;
  /** Runs `sinfo`. */
  command?: typeof command;
}

/** What both `apply` and `watch` run with. */
export interface Session {
  controller: Controller;
  catalogue: Catalogue;
  statePath: string;
  /** Whether anything may be changed. */
  yes: boolean;
  weights: WeightSender | undefined;
  workload(nodes: readonly LiveNode[]): Promise<Demand[]>;
}

export async function sessionFrom(flags: FlagValues, io: Io, outside: Outside): Promise<Session> {
  const catalogue = catalogueFrom(flags);
  const gateway = gatewayFrom(required(flags, 'gateway'), text(flags, 'key-file'), outside.fetch);
  const now = outside.now ?? Date.now;
  const { pause } = outside;
  const slurm = await slurmFrom(flags, catalogue, gateway.url, outside, io);
  const agents =
    flags.agents === true
      ? new Agents({
          gateway,
          catalogue,
          now,
          log: io.log,
          drainMs: Math.round(number(flags, 'drain', 60, { min: 0, max: 86_400 }) * 1e3),
          ...(pause === undefined ? {} : { wait: pause }),
        })
      : undefined;
  const workloadFile = text(flags, 'workload');
  const controller: Controller = {
    gateway,
    catalogue,
    planner: await loadPlanner(text(flags, 'planner')),
    options: planOptionsFrom(flags, catalogue, io.log),
    slurm,
    agents,
    now,
    log: io.log,
  };
  return {
    controller,
    catalogue,
    statePath: text(flags, 'state') ?? 'otela-plan.state.json',
    yes: flags.yes === true,
    weights: flags.weights === true ? new WeightSender(gateway) : undefined,
    workload: async (nodes) =>
      asFlagged(
        flags,
        workloadFile === undefined
          ? await liveWorkload(gateway, catalogue, text(flags, 'window') ?? '10m', io.log, nodes)
          : readWorkload(workloadFile, catalogue),
        catalogue,
      ),
  };
}

/** Undefined: only agents are used. */
async function slurmFrom(
  flags: FlagValues,
  catalogue: Catalogue,
  url: string,
  outside: Outside,
  io: Io,
): Promise<SlurmSide | undefined> {
  if (flags.agents === true && text(flags, 'slurm') === undefined && text(flags, 'inventory') === undefined)
    return undefined;
  if (flags.agents !== true && text(flags, 'inventory') === undefined)
    throw new UsageError('--agents is needed, or --inventory and --slurm: where may replicas be started?');
  const inventory = await inventoryFrom(required(flags, 'inventory'), catalogue, io.log, outside.command);
  if (inventory.running.length > 0)
    throw new SchedulerError(
      'bad_input',
      '`running` has no place in the inventory of apply: what runs is asked of the network',
    );
  const foreign = inventory.pools.find(({ id }) => id.startsWith(AGENT_POOL) || id.startsWith('network: '));
  if (foreign !== undefined) throw new SchedulerError('bad_input', `a pool of Slurm cannot be called ${foreign.id}`);
  const template = readTemplate(required(flags, 'slurm'));
  // Before anything is started: every pool's values must fill the template.
  for (const pool of inventory.pools)
    render(
      template,
      { ...pool.values, model: 'a/b', pool: pool.id, gpu: pool.gpu.id, gateway: url },
      engineValues({ tp: 1 }),
    );
  const pools = inventory.pools.map((pool) => ({
    ...pool,
    allows: (_model: string, spread: Parallelism) => templateAllows(template, spread),
  }));
  return { launcher: outside.launcher ?? slurmLauncher(), inventory: { ...inventory, pools }, template };
}

function readTemplate(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new SchedulerError(
      'bad_input',
      `cannot read the job template ${path}: ${cause instanceof Error ? cause.message : String(cause)}`,
      { cause },
    );
  }
}

export const FLAGS = {
  ...APPLY_FLAGS,
  rollback: { help: 'back to what ran before' },
  stop: { help: 'end all that was started' },
} as const satisfies Flags;

/** `otela-plan apply`: one round. Changes nothing without --yes. */
export async function applyCommand(argv: readonly string[], io: Io, outside: Outside = {}): Promise<number> {
  const flags = parseLine(argv, FLAGS).values;
  if (flags.rollback === true && flags.stop === true) throw new UsageError('--rollback or --stop, not both');
  const session = await sessionFrom(flags, io, outside);
  const unlock = lockState(session.statePath);
  try {
    const before = forgiven(readState(session.statePath), flags.retry === true);
    const observation = await observe(session.controller, before);
    if (flags.rollback === true) return await goTo(session, observation, before.before, io);
    if (flags.stop === true) return await goTo(session, observation, [], io);
    return (await planAndApply(session, observation, await session.workload(observation.nodes), io)).code;
  } finally {
    unlock();
  }
}

export const forgiven = (state: ControllerState, retry: boolean): ControllerState =>
  retry ? { ...state, failures: [] } : state;

/** Back to replicas that are known, without a plan: stops what is too much, starts what is missing. */
async function goTo(session: Session, observation: Observation, wanted: readonly Placement[], io: Io): Promise<number> {
  const found = differences(wanted, observation.state, true);
  return carryOut(
    session,
    observation,
    found,
    { ...observation.state, wanted: [...wanted], before: observation.state.wanted },
    io,
  );
}

export async function planAndApply(
  session: Session,
  observation: Observation,
  workload: readonly Demand[],
  io: Io,
): Promise<{ code: number; state: ControllerState; plan: Plan }> {
  const { controller } = session;
  const { plan, wanted, impossible } = await replan(controller, observation, workload);
  io.out(`${planText(plan, undefined)}\n\nwhy\n${whyText(plan)}\n`);
  for (const line of impossible) io.out(`NOT PLACED: ${line}`);
  for (const node of observation.idle.filter(({ accepts }) => !accepts || controller.agents === undefined)) {
    io.out(
      `idle: node ${node.session.slice(0, 8)} (${node.gpus} × ${node.gpu.id}, ${node.provider}) gets no model: ${node.accepts ? 'it waits for deployments, which --agents gives' : 'its agent takes no deployments'}`,
    );
  }
  const found = differences(wanted, observation.state, controller.options.reclaim);
  const rates = Object.fromEntries(workload.map(({ model, rate }) => [model.id, rate]));
  const changed = JSON.stringify(wanted) !== JSON.stringify(observation.state.wanted);
  const state: ControllerState = {
    ...observation.state,
    wanted,
    before: changed ? observation.state.wanted : observation.state.before,
    planned_for: rates,
  };
  const code = await carryOut(session, observation, found, state, io);
  await session.weights?.send(plan, observation, session.yes, io);
  const planned = impossible.length > 0 ? EXIT_INFEASIBLE : planExit(plan);
  return { code: code === EXIT_DONE ? planned : code, state, plan };
}

async function carryOut(
  session: Session,
  observation: Observation,
  found: Differences,
  state: ControllerState,
  io: Io,
): Promise<number> {
  for (const line of [...observation.events, ...found.held]) io.out(`note: ${line}`);
  if (found.actions.length === 0) io.out('nothing to change');
  if (!session.yes) {
    for (const action of found.actions) io.out(`would ${describe(action)}`);
    if (found.actions.length > 0) io.out('dry run: nothing was changed; --yes does it');
    return EXIT_DONE;
  }
  const save = (now: ControllerState) => writeState(session.statePath, now);
  save(state);
  const { done, failed, later } = await act(session.controller, state, found.actions, save);
  for (const line of done) io.out(`done: ${line}`);
  for (const line of failed) io.out(`FAILED: ${line}`);
  for (const line of later) io.out(`LATER: ${line}`);
  if (failed.length > 0) return EXIT_FAILED;
  return later.length === 0 ? EXIT_DONE : EXIT_BUSY;
}
