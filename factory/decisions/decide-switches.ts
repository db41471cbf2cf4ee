/** Ends an idle engine so that a model with more demand gets its GPUs. */
import { formatMs } from '../config/value-schemas.ts';
import { ending } from './decide-stops.ts';
import type { FactoryAction, FactoryWorld, PlacedModel } from './factory-world.ts';
import type { CountedJob, JobCensus } from './job-census.ts';
import type { Memory } from './persisted-state.ts';
import type { WantedReplicas } from './wanted-replicas.ts';

const HOUR_MS = 3_600_000;
/** An engine counts as idle after this time, which is longer than the pause between two requests of a conversation. */
const IDLE_MIN_MS = 30_000;
/**
 * A job that has been pending for longer than this counts as waiting for GPUs. A shorter wait may be for the
 * scheduler's next round or for an image pull.
 */
const PENDING_MIN_MS = 120_000;

/**
 * Decides at most one switch of GPUs from one model to another per round. A model needs GPUs if a limit holds its start
 * back (`held`), or if all its jobs are pending, one of them for PENDING_MIN_MS, no pool has idle GPUs for it, and
 * ending engines would free enough. Idle engines of the same or a lower priority are ended first, then busy engines of
 * a lower priority are drained.
 */
export function decideSwitches(
  census: JobCensus,
  wanted: ReadonlyMap<string, WantedReplicas>,
  held: ReadonlyMap<string, string>,
  memory: Memory,
  world: FactoryWorld,
  now: number,
): FactoryAction[] {
  const lately = memory.switches.filter((at) => now - at < HOUR_MS).length;
  if (lately >= world.config.guest.switches_per_hour) return [];
  // A job that was drained for an earlier switch has not ended yet.
  if (census.jobs.some((job) => job.asked !== undefined && job.state !== 'pending')) return [];
  const order = [...world.models].sort((a, b) => b.model.priority - a.model.priority);
  for (const placed of order) {
    if (!starved(placed, census, wanted, held, now)) continue;
    const victim = victimFor(placed, census, wanted, world);
    if (victim === undefined) continue;
    const idle = victim.node?.idle_ms ?? 0;
    return [
      ending(
        victim,
        `${idle > 0 ? `idle for ${formatMs(idle)}, and ` : ''}${placed.model.id} needs the place more: ${wanted.get(placed.model.id)?.why ?? ''}`,
      ),
    ];
  }
  return [];
}

/**
 * True if a wanted model has no running job, and either has no job because a limit holds its start back, or has a job
 * that has been pending for PENDING_MIN_MS.
 */
function starved(
  { model }: PlacedModel,
  census: JobCensus,
  wanted: ReadonlyMap<string, WantedReplicas>,
  held: ReadonlyMap<string, string>,
  now: number,
): boolean {
  if ((wanted.get(model.id)?.jobs ?? 0) === 0) return false;
  const ours = census.jobs.filter((job) => job.model === model.id);
  if (ours.some((job) => job.state !== 'pending')) return false;
  return ours.length === 0 ? held.has(model.id) : ours.some(({ since }) => now - since >= PENDING_MIN_MS);
}

/**
 * Returns the pools in which the idle GPUs and those of `candidates` suffice for one job of the model. Empty if some
 * pool has enough idle GPUs already.
 */
function roomyPools(
  { places }: PlacedModel,
  candidates: readonly CountedJob[],
  { clusters }: FactoryWorld,
): Set<string> {
  const pools = new Set<string>();
  for (const { cluster, pool, engine } of places) {
    const view = clusters.get(cluster.id);
    const idle = view?.reachable ? (view.capacity?.find((one) => one.pool === pool.name)?.idle ?? 0) : 0;
    if (idle >= engine.gpus) return new Set();
    const ending = candidates.filter((job) => job.cluster === cluster.id && job.pool === pool.name);
    const freed = ending.reduce((sum, { gpus }) => sum + gpus, 0);
    if (idle + freed >= engine.gpus) pools.add(`${cluster.id}/${pool.name}`);
  }
  return pools;
}

function victimFor(
  placed: PlacedModel,
  census: JobCensus,
  wanted: ReadonlyMap<string, WantedReplicas>,
  world: FactoryWorld,
): CountedJob | undefined {
  const { model, places } = placed;
  const where = new Set(places.map(({ cluster, pool }) => `${cluster.id}/${pool.name}`));
  const priorities = new Map(world.models.map((one) => [one.model.id, one.model.priority]));
  const candidates = census.jobs.filter((job) => {
    if (job.state !== 'ready' || job.node === undefined || job.model === undefined || job.model === model.id)
      return false;
    if (!where.has(`${job.cluster}/${job.pool ?? ''}`)) return false;
    const floor = wanted.get(job.model)?.floor ?? 0;
    if (census.jobs.filter((other) => other.model === job.model && other.state === 'ready').length <= floor)
      return false;
    const priority = priorities.get(job.model) ?? 0;
    return priority < model.priority || (priority === model.priority && job.node.idle_ms >= IDLE_MIN_MS);
  });
  // If the model has no job, a limit prevents its start. Then the end of any engine in its pools helps.
  const waits = census.jobs.some((job) => job.model === model.id);
  const roomy = waits ? roomyPools(placed, candidates, world) : where;
  const idle = (job: CountedJob) => job.node?.idle_ms ?? 0;
  return candidates
    .filter((job) => roomy.has(`${job.cluster}/${job.pool ?? ''}`))
    .sort(
      (a, b) =>
        Number(idle(b) >= IDLE_MIN_MS) - Number(idle(a) >= IDLE_MIN_MS) ||
        (priorities.get(a.model ?? '') ?? 0) - (priorities.get(b.model ?? '') ?? 0) ||
        idle(b) - idle(a),
    )[0];
}
