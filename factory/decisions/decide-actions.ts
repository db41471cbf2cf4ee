/**
 * Decides the actions of one round from all observations. Pure, except that it changes `memory`. `now` is in
 * milliseconds.
 */
import type { ModelConfig } from '../config/schema.ts';
import { formatMs } from '../config/value-schemas.ts';
import { decideReshapes } from './decide-reshapes.ts';
import { decideStarts } from './decide-starts.ts';
import { decideStops, ending } from './decide-stops.ts';
import { decideSwitches } from './decide-switches.ts';
import type { FactoryAction, FactoryWorld } from './factory-world.ts';
import { type CountedJob, countJobs, countSupply, isPending, type JobCensus } from './job-census.ts';
import { forgetBackOffs } from './launch-back-off.ts';
import { jobKey, jobName, type Memory, type SubmissionMemory } from './persisted-state.ts';
import { computeWanted, type ReadyReplicas, type WantedReplicas } from './wanted-replicas.ts';

/**
 * Decides which pending job is cancelled, so that the first replica of a model with waiting requests can start below
 * the factory's caps. At most one job per round: the newest pending job of a lower priority, or of a model that has
 * another job.
 * @param capped by model: the clusters on which only a cap of the factory prevents the model's first replica
 */
function decideYields(
  census: JobCensus,
  capped: ReadonlyMap<string, ReadonlySet<string>>,
  world: FactoryWorld,
): FactoryAction[] {
  // A cancelled job still occupies its place until it has ended.
  if (census.jobs.some((job) => isPending(job) && job.asked !== undefined)) return [];
  const priorityOf = (model: string) => world.models.find((one) => one.model.id === model)?.model.priority ?? 0;
  const order = [...capped].sort(([a], [b]) => priorityOf(b) - priorityOf(a));
  for (const [model, clusters] of order) {
    const mayYield = (job: CountedJob) =>
      isPending(job) &&
      clusters.has(job.cluster) &&
      job.model !== undefined &&
      job.model !== model &&
      (priorityOf(job.model) < priorityOf(model) || countSupply(census, job.model) > 1);
    const [newest] = census.jobs.filter(mayYield).sort((a, b) => b.seen_at - a.seen_at);
    if (newest !== undefined) return [ending(newest, `the first replica of ${model} needs its place`)];
  }
  return [];
}

const SWITCHES_RETENTION_MS = 3_600_000;

export interface Decisions {
  actions: FactoryAction[];
  wanted: Map<string, WantedReplicas>;
  /** By model: the reason why it has fewer replicas than it wants. */
  held: Map<string, string>;
}

export function decideActions(memory: Memory, world: FactoryWorld, now: number): Decisions {
  forgetBackOffs(memory, world.models);
  const count = () => countJobs(memory, world, now);
  const before = count();
  const wanted = new Map<string, WantedReplicas>();
  for (const { model } of world.models) {
    const asked = computeWanted(model, world.demand.get(model.id), readyOf(model.id, before, now), world.config, now);
    const want = withGrowth(asked, model, countSupply(before, model.id), memory, now);
    wanted.set(model.id, want);
    if (want.jobs > 0) memory.wanted_at[model.id] = now;
  }
  // If the gateway cannot be queried, the factory does not know which jobs are idle and which requests wait. Then it
  // ends no job, and starts only the replicas that are kept without requests.
  const blind = world.nodes === undefined;
  if (blind) for (const [model, want] of wanted) wanted.set(model, { ...want, jobs: want.floor });
  const ends = blind ? [] : decideStops(before, wanted, memory.wanted_at, world, now);
  const reachable = ends.filter(
    (action) => action.kind !== 'cancel' || world.clusters.get(action.cluster)?.reachable === true,
  );
  for (const action of reachable) asked(memory, action, now);
  const begin = decideStarts(count(), wanted, memory, world, now);
  const yielded = blind ? [] : decideYields(count(), begin.capped, world);
  for (const action of yielded) asked(memory, action, now);
  const begun = new Set(begin.actions.map(({ model }) => model));
  const reshaped = blind ? [] : decideReshapes(count(), begun, memory, world, now);
  for (const action of reshaped) asked(memory, action, now);
  const given = world.nodes === undefined ? [] : decideSwitches(count(), wanted, begin.held, memory, world, now);
  for (const action of given) {
    asked(memory, action, now);
    memory.switches.push(now);
  }
  memory.switches = memory.switches.filter((at) => now - at < SWITCHES_RETENTION_MS);
  return { actions: [...reachable, ...yielded, ...reshaped, ...given, ...begin.actions], wanted, held: begin.held };
}

/**
 * Keeps jobs that were submitted because replicas were crowded, for the model's idle time. Replicas are crowded only
 * for moments. If the jobs were cancelled at each quiet moment, they would never reach the front of the scheduler's
 * queue.
 */
function withGrowth(
  want: WantedReplicas,
  model: ModelConfig,
  there: number,
  memory: Memory,
  now: number,
): WantedReplicas {
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

function readyOf(model: string, { jobs }: JobCensus, now: number): ReadyReplicas {
  const ready = jobs.filter((job) => job.model === model && job.state === 'ready');
  const since = Math.max(...ready.map((job) => job.ready_at ?? 0));
  return ready.length === 0 ? { count: 0 } : { count: ready.length, newestMs: Math.max(0, now - since) };
}

function asked(memory: Memory, action: FactoryAction, now: number): void {
  if (action.kind === 'submit') return;
  for (const id of action.kind === 'drain' ? [action.job] : action.jobs) {
    const job = memory.jobs[jobKey(action.cluster, id)];
    if (job !== undefined) job.asked = { at: now, what: action.kind, why: action.why.slice(0, 300) };
  }
}

/** Adds the submissions that are about to be sent to the memory. The caller stores it before it calls the scheduler. */
export function withIntendedSubmissions(
  memory: Memory,
  { model, place, count }: Extract<FactoryAction, { kind: 'submit' }>,
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
