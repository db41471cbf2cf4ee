/** One round: from all that is known to what is done. Pure but for `memory`, which it changes; `now` is in ms. */
import type { ModelConfig } from '../config/schema.ts';
import { formatMs } from '../config/values.ts';
import { forgetBackOffs } from './back-off.ts';
import { type Census, countJobs, supply } from './census.ts';
import { jobKey, jobName, type Memory, type SubmissionMemory } from './memory.ts';
import { starts } from './starts.ts';
import { stops } from './stops.ts';
import { switches } from './switches.ts';
import { type Ready, type Wanted, wantedOf } from './wanted.ts';
import type { Action, World } from './world.ts';
import { yields } from './yields.ts';

const SWITCHES_KEPT_MS = 3_600_000;

export interface Decisions {
  actions: Action[];
  wanted: Map<string, Wanted>;
  /** By model: why it has fewer than it wants. */
  held: Map<string, string>;
}

export function decide(memory: Memory, world: World, now: number): Decisions {
  forgetBackOffs(memory, world.models);
  const before = countJobs(memory, world, now);
  const wanted = new Map<string, Wanted>();
  for (const { model } of world.models) {
    const asked = wantedOf(model, world.demand.get(model.id), readyOf(model.id, before, now), world.config, now);
    const want = withGrowth(asked, model, supply(before, model.id), memory, now);
    wanted.set(model.id, want);
    if (want.jobs > 0) memory.wanted_at[model.id] = now;
  }
  // A gateway that cannot be asked knows more of what is idle and of who waits: nothing is ended then, and only what is kept anyway begins.
  const blind = world.nodes === undefined;
  if (blind) for (const [model, want] of wanted) wanted.set(model, { ...want, jobs: want.floor });
  const ends = blind ? [] : stops(before, wanted, memory.wanted_at, world, now);
  const reachable = ends.filter(
    (action) => action.kind !== 'cancel' || world.clusters.get(action.cluster)?.reachable === true,
  );
  for (const action of reachable) asked(memory, action, now);
  const begin = starts(countJobs(memory, world, now), wanted, memory, world, now);
  const yielded = blind ? [] : yields(countJobs(memory, world, now), begin.capped, world);
  for (const action of yielded) asked(memory, action, now);
  const given =
    world.nodes === undefined ? [] : switches(countJobs(memory, world, now), wanted, begin.held, memory, world, now);
  for (const action of given) {
    asked(memory, action, now);
    memory.switches.push(now);
  }
  memory.switches = memory.switches.filter((at) => now - at < SWITCHES_KEPT_MS);
  return { actions: [...reachable, ...yielded, ...given, ...begin.actions], wanted, held: begin.held };
}

/**
 * Replicas are crowded in one moment and not in the next. A job that was submitted for it keeps its place in the scheduler's queue for the
 * model's idle time: cancelled at each quiet moment it would never get to the front.
 */
function withGrowth(want: Wanted, model: ModelConfig, there: number, memory: Memory, now: number): Wanted {
  if (want.grows) memory.growth[model.id] = { at: now, jobs: want.jobs };
  const growth = memory.growth[model.id];
  if (growth === undefined || now - growth.at >= model.idle) {
    delete memory.growth[model.id];
    return want;
  }
  const jobs = Math.min(growth.jobs, there, model.max);
  if (jobs <= want.jobs) return want;
  return { ...want, jobs, why: `${want.why}; crowded ${formatMs(now - growth.at)} ago` };
}

function readyOf(model: string, { jobs }: Census, now: number): Ready {
  const ready = jobs.filter((job) => job.model === model && job.state === 'ready');
  const since = Math.max(...ready.map((job) => job.ready_at ?? 0));
  return ready.length === 0 ? { count: 0 } : { count: ready.length, newestMs: Math.max(0, now - since) };
}

function asked(memory: Memory, action: Action, now: number): void {
  if (action.kind === 'submit') return;
  for (const id of action.kind === 'drain' ? [action.job] : action.jobs) {
    const job = memory.jobs[jobKey(action.cluster, id)];
    if (job !== undefined) job.asked = { at: now, what: action.kind, why: action.why.slice(0, 300) };
  }
}

/** Remembered, and stored, before the scheduler is asked. */
export function intended(
  memory: Memory,
  { model, place, count }: Extract<Action, { kind: 'submit' }>,
  factory: string,
  now: number,
): SubmissionMemory {
  const submission: SubmissionMemory = {
    name: jobName(factory, place.context, memory.next),
    model,
    cluster: place.cluster.id,
    pool: place.pool.name,
    context: place.context,
    gpus: place.engine.gpus,
    count,
    at: now,
    outcome: 'sent',
    ids: [],
    seen: [],
    lists: 0,
  };
  memory.next += 1;
  memory.submissions.push(submission);
  return submission;
}
