import { setTimeout as sleep } from 'node:timers/promises';
import { EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { SchedulerError } from '../errors.ts';
import { type Observation, observe } from '../live/observation.ts';
import { type PlanFilePlacement, planFor, writePlan } from '../live/plan-file.ts';
import { replan } from '../live/replan.ts';
import { type LookSummary, Triggers } from '../live/replan-triggers.ts';
import type { Demand, Placement } from '../solver/planning-problem.ts';
import { type FlagValues, numberFlag, textFlag } from './flags.ts';
import { planText, whyText } from './plan-text.ts';
import { type Outside, type PlanningSession, SESSION_FLAGS, sessionFrom } from './planning-session.ts';
import { refuseRemoved } from './removed-commands.ts';
import { FOLLOW_FLAGS, follow } from './watch-forecast.ts';

interface WatchOutside extends Outside {
  /** Aborted to end the watch. */
  signal?: AbortSignal;
  /** Waits this many ms, or throws when the watch ends. */
  wait?: (ms: number, signal: AbortSignal) => Promise<unknown>;
}

export const WATCH_FLAGS = {
  ...SESSION_FLAGS,
  every: { value: 'S', otherwise: '30', help: 'seconds between checks' },
  plan: { value: 'FILE', takes: 'file', help: 'file to write the plan to; otela-factory follows it' },
  ...FOLLOW_FLAGS,
} as const satisfies Flags;

/** `otela-plan watch`: plans again when something changed, or, with --forecast, in each slot for the slots ahead. */
export async function watchCommand(argv: readonly string[], io: Io, outside: WatchOutside = {}): Promise<number> {
  refuseRemoved(argv);
  const flags = parseLine(argv, WATCH_FLAGS).values;
  if (flags.publish === true && flags.forecast !== true) throw new UsageError('--publish requires --forecast');
  const everyMs = numberFlag(flags, 'every', 30, { min: 1, max: 3600 }) * 1e3;
  const session = await sessionFrom(flags, io, outside);
  const over = new AbortController();
  const end = () => over.abort();
  if (outside.signal) outside.signal.addEventListener('abort', end);
  else for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, end);
  const wait = outside.wait ?? ((ms, signal) => sleep(ms, undefined, { signal }));
  const watched = { signal: over.signal, over: () => over.signal.aborted || outside.signal?.aborted === true, wait };
  try {
    if (flags.forecast === true) return await follow(flags, session, io, watched);
    const shadow = new Shadow(session, flags, io);
    while (!watched.over()) {
      await shadow.look();
      await wait(everyMs, over.signal).catch(() => over.abort());
    }
    return EXIT_DONE;
  } finally {
    process.removeListener('SIGINT', end);
    process.removeListener('SIGTERM', end);
  }
}

/** Makes a plan, prints it, and writes it to a file. It starts and ends no replica. */
class Shadow {
  readonly #session: PlanningSession;
  readonly #path: string | undefined;
  readonly #io: Io;
  readonly #triggers = new Triggers();
  #plannedFor: Record<string, number> = {};
  #placements: readonly PlanFilePlacement[] | undefined;
  /** True if the gateway did not answer while the last plan was made. */
  #isUnfinished = false;

  constructor(session: PlanningSession, flags: FlagValues, io: Io) {
    this.#session = session;
    this.#path = textFlag(flags, 'plan');
    this.#io = io;
  }

  /** A failure of the gateway is logged and retried at the next look; only a configuration error ends the watch. */
  async look(): Promise<void> {
    const { context } = this.#session;
    const at = `${new Date(context.now()).toISOString().slice(0, 19)}Z`;
    let isPlanning = false;
    try {
      const observation = await observe(context);
      const workload = (await this.#session.workload(observation.nodes)).filter(({ rate }) => rate > 0);
      const reasons = [
        ...(this.#isUnfinished ? ['the last attempt to plan failed'] : []),
        ...this.#triggers.look(seenIn(observation, workload), this.#plannedFor, context.now()),
      ];
      if (reasons.length > 0) {
        this.#io.out(`${at} plans again: ${reasons.join('; ')}`);
        isPlanning = workload.length > 0;
        if (isPlanning) await this.#plan(observation, workload);
        else this.#io.out('there were no requests: the plan does not change');
      }
      this.#isUnfinished = false;
      // The plan file is written again at each look, even without a new plan, because a factory ignores a file that is
      // too old.
      if (this.#placements !== undefined && this.#path !== undefined) writePlan(this.#path, this.#placements);
    } catch (error) {
      if (!(error instanceof SchedulerError) || error.code === 'usage' || error.code === 'bad_input') throw error;
      this.#isUnfinished = isPlanning && error.code === 'gateway';
      this.#io.log(`${at} ${error.message}; the previous plan stays`);
    }
  }

  async #plan(observation: Observation, workload: readonly Demand[]): Promise<void> {
    const { plan, wanted, impossible } = await replan(this.#session.context, observation, workload);
    this.#io.out(`${planText(plan, undefined)}\n\nwhy\n${whyText(plan)}\n`);
    for (const line of impossible) this.#io.out(`NOT PLACED: ${line}`);
    for (const { session, gpus, gpu, provider } of observation.idle.filter(({ accepts }) => !accepts))
      this.#io.out(
        `idle: node ${session.slice(0, 8)} (${gpus} × ${gpu.id}, ${provider}) gets no model: its agent does not accept deployments`,
      );
    this.#plannedFor = Object.fromEntries(workload.map(({ model, rate }) => [model.id, rate]));
    this.#placements = planFor(observation, wanted);
    const change = changesOf(observation, wanted);
    for (const line of change) this.#io.out(`would ${line}`);
    if (change.length === 0) this.#io.out('nothing to change');
  }
}

function changesOf({ deployed }: Observation, wanted: readonly Placement[]): string[] {
  const models = new Set([...wanted, ...deployed].map(({ model }) => model));
  return [...models].flatMap((model) => {
    const to = wanted.filter((one) => one.model === model).reduce((sum, { replicas }) => sum + replicas, 0);
    const from = deployed.filter((one) => one.model === model).length;
    return to === from ? [] : [`run ${to} replicas of ${model} on agents instead of ${from}`];
  });
}

function seenIn({ idle, others, deployed }: Observation, workload: readonly Demand[]): LookSummary {
  const served = ({ model }: Demand) =>
    deployed.some((replica) => replica.model === model.id) ||
    others.some(({ models }) => models.some((name) => name === model.id || model.id.endsWith(`/${name}`)));
  return {
    idle: idle.map(({ session }) => session),
    without: workload.filter((demand) => !served(demand)).map(({ model }) => model.id),
    rates: Object.fromEntries(workload.map(({ model, rate }) => [model.id, rate])),
  };
}
