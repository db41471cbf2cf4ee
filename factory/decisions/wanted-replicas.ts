/** Decides how many replicas a model should have, and why. */
import type { ModelDemand } from '../../shared/factory/factory-exchange.ts';
import type { FactoryConfig, ModelConfig, Weekday } from '../config/schema.ts';
import { formatMs } from '../config/value-schemas.ts';

export interface WantedReplicas {
  /** Number of wanted jobs, at most the model's `max`. */
  jobs: number;
  /** Jobs that are kept without requests: by `min`, warm hours or a plan. */
  floor: number;
  /** True if requests wait for this model. */
  urgent: boolean;
  /** True if one more job is wanted because the serving replicas are crowded. */
  grows: boolean;
  why: string;
}

interface Reason {
  jobs: number;
  why: string;
  grows?: boolean;
}

/** Replicas of this factory that serve requests. */
export interface ReadyReplicas {
  count: number;
  /** Milliseconds since the newest replica began to serve; undefined: none serves. */
  newestMs?: number;
}

/**
 * For this time after a replica begins to serve, waiting requests do not start another one. The gateway counts a queue
 * for up to 12 s after its last report, and the requests of that queue have already started the replica.
 */
const NEWEST_MS = 15_000;

/** Computes how many jobs a model should have. `demand` undefined: no source reported demand for it. */
export function computeWanted(
  model: ModelConfig,
  demand: ModelDemand | undefined,
  ready: ReadyReplicas,
  config: Pick<FactoryConfig, 'timezone'>,
  now: number,
): WantedReplicas {
  const kept: Reason[] = [
    ...(model.min > 0 ? [{ jobs: model.min, why: `min is ${model.min}` }] : []),
    ...warmOf(model, config.timezone, now),
    ...(demand?.wanted ?? []).map(({ from, replicas }) => ({ jobs: replicas, why: `${from} wants ${replicas}` })),
  ];
  const asked = demand === undefined ? [] : [...requests(model, demand, ready), ...batches(model, demand)];
  const floor = Math.min(model.max, most(kept));
  const all = [...kept, ...asked].filter(({ jobs }) => jobs > 0);
  const jobs = Math.min(model.max, most(all));
  const capped = most(all) > model.max ? `, max is ${model.max}` : '';
  return {
    jobs,
    floor,
    urgent: demand !== undefined && demand.waiting + demand.queued > 0,
    grows: all.some((reason) => reason.grows === true && reason.jobs >= jobs),
    why: all.length === 0 ? 'there is no demand' : `${all.map(({ why }) => why).join('; ')}${capped}`,
  };
}

const most = (reasons: readonly Reason[]) => Math.max(0, ...reasons.map(({ jobs }) => jobs));

function requests(
  model: ModelConfig,
  demand: ModelDemand,
  { count: ready, newestMs = NEWEST_MS }: ReadyReplicas,
): Reason[] {
  const { waiting, oldest_wait_ms, asked_ms_ago, queued, busy, ready_replicas } = demand;
  const reasons: Reason[] = [];
  if (waiting > 0)
    reasons.push({ jobs: 1, why: `${waiting} requests wait, the first for ${formatMs(oldest_wait_ms)}` });
  // If replicas that another program started serve the model, an earlier request starts no job.
  else if (asked_ms_ago !== undefined && asked_ms_ago < model.idle && ready_replicas - ready <= 0)
    reasons.push({ jobs: 1, why: `requested ${formatMs(asked_ms_ago)} ago` });
  const crowded =
    queued > 0
      ? `${queued} requests queue`
      : busy >= model.busy
        ? `replicas are ${Math.round(busy * 100)} % busy`
        : undefined;
  if (ready_replicas === 0 || crowded === undefined) return reasons;
  const settles = newestMs < NEWEST_MS;
  const why = settles ? `${crowded}, and the newest replica serves for ${formatMs(newestMs)}` : crowded;
  return [...reasons, { jobs: settles ? ready : ready + 1, why, grows: !settles }];
}

/** Returns one replica for every `lines_per_job` batch lines, at least one if there are lines. */
function batches(model: ModelConfig, { batch }: ModelDemand): Reason[] {
  if (batch === undefined || batch.lines === 0) return [];
  const jobs = Math.ceil(batch.lines / model.lines_per_job);
  const by = batch.deadline_ms === undefined ? '' : `, the first batch ends in ${formatMs(batch.deadline_ms)}`;
  return [{ jobs, why: `${batch.lines} lines of batches need ${jobs}${by}` }];
}

function warmOf({ warm }: ModelConfig, timezone: string, now: number): Reason[] {
  if (warm.length === 0) return [];
  const { day, minute } = localTime(timezone, now);
  return warm
    .filter(
      ({ days, from, to }) =>
        within(minute, minutes(from), minutes(to)) &&
        days.includes(minutes(from) <= minutes(to) || minute >= minutes(from) ? day : dayBefore(day)),
    )
    .map(({ jobs, from, to }) => ({ jobs, why: `warm from ${from} to ${to}` }));
}

/** Hours that cross midnight belong to the day on which they begin. */
const within = (minute: number, from: number, to: number) =>
  from <= to ? minute >= from && minute < to : minute >= from || minute < to;
const minutes = (clock: string) => Number(clock.slice(0, 2)) * 60 + Number(clock.slice(3));
const DAYS: readonly Weekday[] = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'];
const dayBefore = (day: Weekday): Weekday => DAYS[(DAYS.indexOf(day) + 6) % 7] ?? 'mon';

function localTime(timeZone: string, now: number): { day: Weekday; minute: number } {
  const format = new Intl.DateTimeFormat('en-GB', {
    timeZone,
    weekday: 'short',
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  });
  const parts = new Map(format.formatToParts(now).map(({ type, value }) => [type, value]));
  const name = parts.get('weekday')?.toLowerCase();
  return {
    day: DAYS.find((one) => one === name) ?? 'mon',
    minute: Number(parts.get('hour')) * 60 + Number(parts.get('minute')),
  };
}
