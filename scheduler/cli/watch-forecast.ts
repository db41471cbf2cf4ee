import { EXIT_DONE, type Flags, UsageError } from '../../shared/command-line/index.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { SchedulerError } from '../errors.ts';
import { DemandFollower, type FollowOptions, type FollowOutput } from '../follow/follower.ts';
import { parsePin } from '../follow/pinned-replicas.ts';
import { readRates } from '../follow/replica-options.ts';
import { appendRecords, readRecords, timelineOf } from '../follow/slot-records.ts';
import { planFor, writePlan } from '../live/plan-file.ts';
import { type FlagValues, numberFlag, textFlag } from './flags.ts';
import type { PlanningSession } from './planning-session.ts';

export const FOLLOW_FLAGS = {
  forecast: { help: 'plan for the next slots with a forecast by kind of request' },
  slot: { value: 'S', otherwise: '60', help: 'with --forecast: seconds per slot' },
  horizon: { value: 'N', otherwise: '5', help: 'number of future slots in which a change must pay off' },
  season: { value: 'N', otherwise: 'a day', help: 'number of slots after which the load repeats' },
  margin: { value: '0…1', otherwise: '0.1', help: 'share of waiting time that a change must save' },
  confirm: { value: 'N', otherwise: '2', help: 'consecutive slots that must agree on a change' },
  'switch-s': { value: 'S', otherwise: '60', help: 'seconds for which a replica is unavailable when it changes' },
  wave: { value: 'N', otherwise: '1', help: 'replicas of a model that change at a time' },
  rates: { value: 'FILE', takes: 'file', help: 'file with measured tokens/s of replicas, by model, tp and pp' },
  pin: { value: 'MODEL[=2xtp4,1xtp2pp2]', repeat: true, help: 'keep the current replicas of a model, or use these' },
  history: { value: 'FILE', takes: 'file', help: 'file with one JSON line per slot and model; also read at the start' },
  publish: { help: 'with --forecast: publish kinds of request, shares and the timeline at the gateway' },
} as const satisfies Flags;

const DAY_S = 86_400;

interface Watched {
  signal: AbortSignal;
  over(): boolean;
  wait(ms: number, signal: AbortSignal): Promise<unknown>;
}

/** `otela-plan watch --forecast`: plans once per slot, just after the slot begins. */
export async function follow(
  flags: FlagValues,
  { context }: PlanningSession,
  io: Io,
  watched: Watched,
): Promise<number> {
  const options = followOptions(flags);
  const history = textFlag(flags, 'history');
  const path = textFlag(flags, 'plan');
  const stamped = (line: string) => `${stamp(context.now())} ${line}`;
  const output: FollowOutput = {
    out: (line) => io.out(stamped(line)),
    log: (line) => io.log(stamped(line)),
    handOver: (observation, wanted) => {
      if (path !== undefined) writePlan(path, planFor(observation, wanted), options.wave);
    },
    record: async (records) => {
      if (history !== undefined) appendRecords(history, records);
      if (!options.publish) return;
      // An older gateway has no timeline; the history file and the log contain the same records.
      await context.gateway.put('/admin/timeline', timelineOf(records)).catch((error: unknown) => {
        io.log(`cannot send this slot to the dashboard's timeline: ${errorText(error)}`);
      });
    },
  };
  const before = history === undefined ? [] : readRecords(history, io.log);
  const follower = new DemandFollower(context, options, output, before);
  while (!watched.over()) {
    try {
      await follower.look();
    } catch (error) {
      if (!(error instanceof SchedulerError) || error.code === 'usage' || error.code === 'bad_input') throw error;
      output.log(`${error.message}; the previous plan stays`);
    }
    const slotMs = options.slotS * 1e3;
    const now = context.now();
    await watched.wait(Math.ceil((now + 1) / slotMs) * slotMs - now, watched.signal).catch(() => undefined);
    if (watched.signal.aborted) break;
  }
  return EXIT_DONE;
}

function followOptions(flags: FlagValues): FollowOptions {
  const slotS = numberFlag(flags, 'slot', 60, { min: 1, max: 3600 });
  if (!Number.isInteger(slotS)) throw new UsageError('--slot must be a whole number of seconds');
  const whole = (name: string, fallback: number, max: number) =>
    Math.round(numberFlag(flags, name, fallback, { min: 1, max }));
  const rates = textFlag(flags, 'rates');
  return {
    slotS,
    horizon: whole('horizon', 5, 60),
    season: whole('season', Math.max(1, Math.round(DAY_S / slotS)), 100_000),
    margin: numberFlag(flags, 'margin', 0.1, { min: 0, max: 1 }),
    confirm: whole('confirm', 2, 60),
    switchS: numberFlag(flags, 'switch-s', 60, { min: 0, max: 3600 }),
    wave: whole('wave', 1, 1000),
    pins: listOf(flags, 'pin').map(parsePin),
    measured: rates === undefined ? [] : readRates(rates),
    publish: flags.publish === true,
  };
}

const stamp = (at: number): string => `${new Date(at).toISOString().slice(0, 19)}Z`;

function listOf(flags: FlagValues, name: string): string[] {
  const value = flags[name];
  return Array.isArray(value) ? value.filter((one) => typeof one === 'string') : [];
}
