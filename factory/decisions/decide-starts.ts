/** Decides which jobs start and where, and explains why others do not. */
import { formatMs } from '../config/value-schemas.ts';
import type { FactoryAction, FactoryWorld, PlacedEngine, PlacedModel } from './factory-world.ts';
import { countPresent, countSupply, isPending, type JobCensus } from './job-census.ts';
import { backOffsOf } from './launch-back-off.ts';
import type { Memory } from './persisted-state.ts';
import { shapeDifference } from './shape-difference.ts';
import type { WantedReplicas } from './wanted-replicas.ts';

const MINUTE_MS = 60_000;
/** Maximum jobs of one submission, which is a job array. */
const ARRAY_MAX = 20;

type Submit = Extract<FactoryAction, { kind: 'submit' }>;

interface Starts {
  actions: Submit[];
  /** By model: the reason why fewer jobs start than are wanted. */
  held: Map<string, string>;
  /**
   * By model: the clusters on which only a cap of the factory prevents the first replica, although requests wait for
   * it.
   */
  capped: Map<string, ReadonlySet<string>>;
}

/** The remaining part of each limit while jobs are assigned to places. */
interface RemainingCapacity {
  submissions: number;
  total: number;
  jobs: Map<string, number>;
  pending: Map<string, number>;
  gpus: Map<string, number>;
  idle: Map<string, number>;
}

export function decideStarts(
  census: JobCensus,
  wanted: ReadonlyMap<string, WantedReplicas>,
  memory: Memory,
  world: FactoryWorld,
  now: number,
): Starts {
  const room = roomOf(census, memory, world, now);
  const held = new Map<string, string>();
  const capped = new Map<string, ReadonlySet<string>>();
  const given: Submit[] = [];
  const counts = new Map<string, number>();
  const missing = new Map(world.models.map((placed) => [placed, shapeDifference(placed, census, world)?.missing]));
  // First replicas of all models come before second replicas. Among equals, the model with the higher priority comes
  // first.
  const needs = world.models
    .flatMap((placed) => units(placed, census, wanted.get(placed.model.id)))
    .sort((a, b) => b.urgency - a.urgency || b.placed.model.priority - a.placed.model.priority || a.nth - b.nth);
  for (const { placed, urgency } of needs) {
    const { model } = placed;
    const begun = counts.get(model.id) ?? 0;
    const shape = missing.get(placed)?.find(({ count }) => count > 0);
    const places = shape === undefined ? placed.places : [...shape.places, ...(urgency > 0 ? placed.places : [])];
    const choice = choose({ ...placed, places }, begun, census, memory, world, room, now);
    if ('why' in choice) {
      held.set(model.id, choice.why);
      if (urgency > 0 && choice.capped.size > 0) capped.set(model.id, choice.capped);
      continue;
    }
    counts.set(model.id, begun + 1);
    if (shape !== undefined) shape.count -= 1;
    take(room, choice);
    const same = given.find(
      ({ model: other, place, count }) => other === model.id && place === choice && count < ARRAY_MAX,
    );
    if (same === undefined)
      given.push({ kind: 'submit', model: model.id, place: choice, count: 1, why: wanted.get(model.id)?.why ?? '' });
    else same.count += 1;
  }
  return { actions: given, held, capped };
}

function units(
  placed: PlacedModel,
  census: JobCensus,
  want: WantedReplicas | undefined,
): { placed: PlacedModel; nth: number; urgency: number }[] {
  if (want === undefined) return [];
  const there = countSupply(census, placed.model.id);
  const missing = Math.max(0, Math.min(want.jobs - there, placed.model.max - countPresent(census, placed.model.id)));
  return Array.from({ length: missing }, (_, n) => ({
    placed,
    nth: there + n,
    urgency: there + n === 0 && want.urgent ? 1 : 0,
  }));
}

function roomOf(
  { jobs, coming }: JobCensus,
  memory: Memory,
  { config, clusters }: FactoryWorld,
  now: number,
): RemainingCapacity {
  const recent = memory.submissions.filter(({ at }) => now - at < MINUTE_MS).reduce((sum, { count }) => sum + count, 0);
  const count = <T>(list: readonly T[], of: (one: T) => number) => list.reduce((sum, one) => sum + of(one), 0);
  const [jobsLeft, pending, gpus, idle] = [
    new Map<string, number>(),
    new Map<string, number>(),
    new Map<string, number>(),
    new Map<string, number>(),
  ];
  for (const cluster of config.clusters) {
    const ours = jobs.filter((job) => job.cluster === cluster.id);
    const soon = coming.filter((one) => one.cluster === cluster.id);
    jobsLeft.set(cluster.id, cluster.max_jobs - ours.length - count(soon, (one) => one.count));
    pending.set(cluster.id, cluster.max_pending - ours.filter(isPending).length - count(soon, (one) => one.count));
    const used = count(ours, (job) => job.gpus) + count(soon, (one) => one.count * one.gpus);
    gpus.set(cluster.id, (cluster.max_gpus ?? Number.POSITIVE_INFINITY) - used);
    const view = clusters.get(cluster.id);
    if (view?.reachable)
      for (const { pool, idle: free } of view.capacity ?? []) idle.set(`${cluster.id}/${pool}`, free);
  }
  return {
    submissions: config.guest.submissions_per_minute - recent,
    total: config.guest.max_jobs - jobs.length - count(coming, (one) => one.count),
    jobs: jobsLeft,
    pending,
    gpus,
    idle,
  };
}

function take(room: RemainingCapacity, { cluster, pool, engine }: PlacedEngine): void {
  const less = (map: Map<string, number>, key: string, by: number) => map.set(key, (map.get(key) ?? 0) - by);
  room.submissions -= 1;
  room.total -= 1;
  less(room.jobs, cluster.id, 1);
  less(room.pending, cluster.id, 1);
  less(room.gpus, cluster.id, engine.gpus);
  less(room.idle, `${cluster.id}/${pool.name}`, engine.gpus);
}

interface NoPlace {
  why: string;
  /** Clusters on which only the factory's own caps prevent a start. */
  capped: ReadonlySet<string>;
}

/** Returns the best place with free capacity, or the reason why there is none. */
function choose(
  placed: PlacedModel,
  begun: number,
  census: JobCensus,
  memory: Memory,
  world: FactoryWorld,
  room: RemainingCapacity,
  now: number,
): PlacedEngine | NoPlace {
  if (room.total <= 0) {
    const capped = new Set(placed.places.map(({ cluster }) => cluster.id));
    return { why: `the factory has its maximum of ${world.config.guest.max_jobs} jobs`, capped };
  }
  if (room.submissions <= 0)
    return {
      why: `the limit of ${world.config.guest.submissions_per_minute} submissions per minute is reached`,
      capped: new Set(),
    };
  const open: PlacedEngine[] = [];
  const closed: string[] = [];
  const capped = new Set<string>();
  for (const place of placed.places) {
    const obstacle = obstacleOf(place, placed, begun, census, memory, world, now) ?? nodeless(place, room);
    const why = obstacle ?? capOf(place, room);
    if (why === undefined) open.push(place);
    else closed.push(why);
    if (obstacle === undefined && why !== undefined) capped.add(place.cluster.id);
  }
  const free = (place: PlacedEngine) =>
    Number((room.idle.get(`${place.cluster.id}/${place.pool.name}`) ?? 0) >= place.engine.gpus);
  // The sort is stable: places with the same free capacity keep the order of the file.
  const [best] = open.sort((a, b) => free(b) - free(a));
  return best ?? { why: [...new Set(closed)].join('; ') || 'no cluster has GPUs for it', capped };
}

/** Returns why no job may start at the place now. Ignores reasons that would disappear if another job ended. */
export function obstacleOf(
  place: PlacedEngine,
  { model }: PlacedModel,
  begun: number,
  census: JobCensus,
  memory: Memory,
  world: FactoryWorld,
  now: number,
): string | undefined {
  const { cluster, pool, engine } = place;
  const view = world.clusters.get(cluster.id);
  if (view === undefined) return `${cluster.id} has not answered yet`;
  if (!view.reachable) return `${cluster.id} does not answer: ${view.reason}`;
  const { refused, starts: backOff } = backOffsOf(memory, model.id, place);
  if (refused !== undefined && now < refused.until)
    return `${cluster.id}/${pool.name}: waits for ${formatMs(refused.until - now)} more: ${refused.reason}`;
  if (backOff !== undefined) {
    if (now < backOff.until)
      return `${cluster.id}: ${backOff.resting ? 'pauses' : 'waits'} for ${formatMs(backOff.until - now)} more: ${backOff.reason}`;
    // Until a job of the recipe has served, only one job is started at a time, so that a broken recipe costs one job.
    const trying = census.jobs.some(
      (job) => job.model === model.id && job.cluster === cluster.id && job.state !== 'ready' && job.asked === undefined,
    );
    const coming = census.coming.some((one) => one.model === model.id && one.cluster === cluster.id);
    if (trying || coming || begun > 0) return `${cluster.id}: one start is being tried after: ${backOff.reason}`;
  }
  return pool.gpus !== undefined && pool.gpus < engine.gpus ? `${pool.name} has ${pool.gpus} GPUs` : undefined;
}

/**
 * Returns the reason if no idle agent is free. Idle agents need this check, because they have no queue in which a job
 * could wait.
 */
function nodeless({ cluster, pool, engine }: PlacedEngine, room: RemainingCapacity): string | undefined {
  if (cluster.launcher !== 'agents' || (room.idle.get(`${cluster.id}/${pool.name}`) ?? 0) >= engine.gpus)
    return undefined;
  return `no node of ${cluster.id}/${pool.name} is idle`;
}

/** Returns the factory's cap that the place has reached. */
function capOf({ cluster, engine }: PlacedEngine, room: RemainingCapacity): string | undefined {
  if ((room.jobs.get(cluster.id) ?? 0) <= 0) return `${cluster.id} has its maximum of ${cluster.max_jobs} jobs`;
  if ((room.pending.get(cluster.id) ?? 0) <= 0) return `${cluster.max_pending} jobs already wait at ${cluster.id}`;
  if ((room.gpus.get(cluster.id) ?? 0) < engine.gpus)
    return `${cluster.id} has its maximum of ${cluster.max_gpus ?? 0} GPUs`;
  return undefined;
}
