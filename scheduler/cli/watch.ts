import { setTimeout as sleep } from 'node:timers/promises';
import { EXIT_DONE, type Flags, parseLine } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/io.ts';
import { observe } from '../controller/round.ts';
import { type ControllerState, lockState, readState, writeState } from '../controller/state.ts';
import { Triggers } from '../controller/triggers.ts';
import { SchedulerError } from '../errors.ts';
import type { Plan } from '../planner/types.ts';
import type { Demand } from '../solver/problem.ts';
import { APPLY_FLAGS, forgiven, type Outside, planAndApply, type Session, sessionFrom } from './apply.ts';
import { EXIT_BUSY, EXIT_FAILED } from './exit.ts';
import { number } from './flags.ts';
import { FOLLOW_FLAGS, follow } from './follow.ts';

interface WatchOutside extends Outside {
  /** Ends the watch; everything it started goes on. */
  signal?: AbortSignal;
  /** Waits so many ms, or throws when the watch is over. */
  wait?: (ms: number, signal: AbortSignal) => Promise<unknown>;
}

export const FLAGS = {
  ...APPLY_FLAGS,
  every: { value: 'S', otherwise: '30', help: 'seconds between looks' },
  ...FOLLOW_FLAGS,
} as const satisfies Flags;

/** `otela-plan watch`: plans again when something changed, or, with --forecast, in each slot for the slots that come. Ending it, even by kill -9, ends nothing that it started. */
export async function watchCommand(argv: readonly string[], io: Io, outside: WatchOutside = {}): Promise<number> {
  const flags = parseLine(argv, FLAGS).values;
  const everyMs = number(flags, 'every', 30, { min: 1, max: 3600 }) * 1e3;
  const session = await sessionFrom(flags, io, outside);
  const unlock = lockState(session.statePath);
  const over = new AbortController();
  const end = () => over.abort();
  if (outside.signal) outside.signal.addEventListener('abort', end);
  else for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, end);
  const triggers = new Triggers();
  // A dry run writes nothing, but must not say the same again each round.
  const dry: Memory = {};
  const wait = outside.wait ?? ((ms, signal) => sleep(ms, undefined, { signal }));
  const watched = { signal: over.signal, over: () => over.signal.aborted || outside.signal?.aborted === true, wait };
  try {
    if (flags.forecast === true) return await follow(flags, session, io, watched);
    let retry = flags.retry === true;
    while (!over.signal.aborted && outside.signal?.aborted !== true) {
      await look(session, triggers, dry, retry, io);
      retry = false;
      await wait(everyMs, over.signal).catch(() => over.abort());
    }
    return EXIT_DONE;
  } finally {
    process.removeListener('SIGINT', end);
    process.removeListener('SIGTERM', end);
    unlock();
  }
}

/** What one look tells the next. */
interface Memory {
  /** Of a dry run. */
  state?: ControllerState;
  /** Something could not be done last time. */
  unfinished?: boolean;
  /** What is in force. */
  plan?: Plan;
}

/** One look. What goes wrong outside (gateway, Slurm) is said and tried again next time; only a wrong set-up ends the watch. */
async function look(session: Session, triggers: Triggers, dry: Memory, retry: boolean, io: Io): Promise<void> {
  const { controller } = session;
  const at = new Date(controller.now()).toISOString().slice(0, 19);
  let planning = false;
  try {
    const observation = await observe(controller, forgiven(dry.state ?? readState(session.statePath), retry));
    const workload = (await session.workload(observation.nodes)).filter(({ rate }) => rate > 0);
    const { jobs } = observation.state;
    const served = (demand: Demand) =>
      jobs.some(({ model }) => model === demand.model.id) ||
      observation.others.some(({ models }) =>
        models.some((name) => name === demand.model.id || demand.model.id.endsWith(`/${name}`)),
      );
    const seen = {
      idle: observation.idle.map(({ session: id }) => id),
      without: workload.filter((demand) => !served(demand)).map(({ model }) => model.id),
      rates: Object.fromEntries(workload.map(({ model, rate }) => [model.id, rate])),
    };
    // A job that ended leaves room that the plan had filled.
    const unfinished = dry.unfinished ? ['the last round could not do everything'] : [];
    const reasons = [
      ...unfinished,
      ...observation.events,
      ...triggers.look(seen, observation.state.planned_for, controller.now()),
    ];
    if (session.yes) writeState(session.statePath, observation.state);
    else dry.state = observation.state;
    // Sessions follow one another: a replica that came since the plan gets its share.
    if (dry.plan !== undefined) await session.weights?.send(dry.plan, observation, session.yes, io);
    if (reasons.length === 0) return;
    io.out(`${at}Z plans again: ${reasons.join('; ')}`);
    if (workload.length === 0) return io.out('nobody asks for anything: what runs is left as it is');
    planning = true;
    const { state, code, plan } = await planAndApply(session, observation, workload, io);
    dry.plan = plan;
    dry.unfinished = code === EXIT_FAILED || code === EXIT_BUSY;
    if (!session.yes) dry.state = state;
  } catch (error) {
    if (!(error instanceof SchedulerError) || error.code === 'usage' || error.code === 'bad_input') throw error;
    // What cannot be is said once; who did not answer is asked again.
    if (planning) dry.unfinished = error.code === 'gateway' || error.code === 'launcher';
    io.log(`${at}Z ${error.message}; what runs goes on`);
  }
}
