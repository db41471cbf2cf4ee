/** Decides which jobs end. Pending jobs end first. Running jobs end by a drain. */
import { formatMs } from '../config/value-schemas.ts';
import type { FactoryAction, FactoryWorld } from './factory-world.ts';
import { type CountedJob, countSupply, isPending, type JobCensus } from './job-census.ts';
import type { WantedReplicas } from './wanted-replicas.ts';

/**
 * Maximum duration of a drain. A drained engine finishes its running requests, but a stream that runs for a day must
 * not hold a GPU.
 */
export const DRAIN_MAX_MS = 900_000;
/**
 * After this time a drained agent without running requests is cancelled. It normally ends within seconds after the
 * order.
 */
const DRAINED_MS = 30_000;
/**
 * After this time a cancellation is repeated, because the request may have been lost. A cancelled job normally ends
 * within its scheduler's grace time.
 */
const CANCEL_RETRY_MS = 90_000;

export function decideStops(
  census: JobCensus,
  wanted: ReadonlyMap<string, WantedReplicas>,
  wantedAt: Readonly<Record<string, number>>,
  world: FactoryWorld,
  now: number,
): FactoryAction[] {
  return [
    ...again(census, now),
    ...stopStrays(census, world),
    ...world.models.flatMap(({ model }) => {
      const want = wanted.get(model.id) ?? { jobs: 0, floor: 0, urgent: false, grows: false, why: '' };
      const ours = census.jobs.filter((job) => job.model === model.id && job.asked === undefined);
      const surplus = surplusPending(census, ours, model.id, want);
      const left = ours.filter((job) => !surplus.includes(job));
      const idle = idleOnes(left, want, model.idle, wantedAt[model.id], now);
      const over = overMax(
        left.filter((job) => !idle.includes(job)),
        model.max,
      );
      return [
        ...cancels(surplus, `it is pending and no longer needed: ${want.why}`),
        ...idle.map((job) =>
          ending(
            job,
            `idle for ${formatMs(idleMs(job, wantedAt[model.id], now))}, the limit is ${formatMs(model.idle)}`,
          ),
        ),
        ...over.map((job) => ending(job, `more than max ${model.max}`)),
      ];
    }),
  ];
}

/**
 * Returns the action that ends a job. If a gateway knows its node, the node is drained; otherwise nothing runs on it,
 * and the job is cancelled.
 */
export function ending(job: CountedJob, why: string): FactoryAction {
  const of = job.model === undefined ? {} : { model: job.model };
  if (job.node === undefined || isPending(job))
    return { kind: 'cancel', cluster: job.cluster, jobs: [job.id], ...of, why };
  return { kind: 'drain', cluster: job.cluster, job: job.id, session: job.node.session, ...of, why };
}

function cancels(jobs: readonly CountedJob[], why: string): FactoryAction[] {
  return jobs.map((job) => ending(job, why));
}

/** Ends jobs again that continue although the factory asked for their end. */
function again({ jobs }: JobCensus, now: number): FactoryAction[] {
  return jobs.flatMap((job): FactoryAction[] => {
    if (job.asked === undefined) return [];
    const { at, what, why } = job.asked;
    const of = job.model === undefined ? {} : { model: job.model };
    const cancel = (because: string): FactoryAction => ({
      kind: 'cancel',
      cluster: job.cluster,
      jobs: [job.id],
      ...of,
      why: because,
    });
    if (what === 'cancel') return now - at < CANCEL_RETRY_MS ? [] : [cancel(why)];
    if (now - at >= DRAIN_MAX_MS) return [cancel(`${why}; it did not drain within ${formatMs(DRAIN_MAX_MS)}`)];
    if (now - at >= DRAINED_MS && (job.node === undefined || job.node.in_flight === 0))
      return [cancel(`${why}; it is drained`)];
    return [];
  });
}

/** Ends jobs of recipes that are no longer in the file, by a drain. */
function stopStrays({ jobs }: JobCensus, world: FactoryWorld): FactoryAction[] {
  return jobs.flatMap((job) => {
    if (!job.outdated || job.asked !== undefined) return [];
    const known = world.models.some(({ model }) => model.id === job.model);
    if (!known) return [ending(job, 'its model was removed from the file')];
    // A job of the old recipe serves until a job of the new recipe is ready, or until it has no requests.
    const replaced = jobs.some((other) => other.model === job.model && !other.outdated && other.state === 'ready');
    const idle = job.node === undefined || job.node.in_flight === 0;
    return isPending(job) || replaced || idle ? [ending(job, 'its recipe was edited')] : [];
  });
}

function surplusPending(
  census: JobCensus,
  ours: readonly CountedJob[],
  model: string,
  want: WantedReplicas,
): CountedJob[] {
  const surplus = countSupply(census, model) - Math.max(want.jobs, want.floor);
  if (surplus <= 0) return [];
  const waiting = ours.filter((job) => isPending(job) && !job.outdated);
  // The newest pending jobs end first, because they have waited least.
  return waiting.sort((a, b) => b.seen_at - a.seen_at).slice(0, surplus);
}

function idleMs(job: CountedJob, wantedAt: number | undefined, now: number): number {
  if (job.state === 'ready' && job.node !== undefined) return job.node.idle_ms;
  return Math.min(now - (job.began_at ?? now), wantedAt === undefined ? Number.POSITIVE_INFINITY : now - wantedAt);
}

function idleOnes(
  ours: readonly CountedJob[],
  want: WantedReplicas,
  idle: number,
  wantedAt: number | undefined,
  now: number,
): CountedJob[] {
  const running = ours.filter((job) => !isPending(job) && job.state !== 'draining');
  const spare = running.length - want.floor;
  // The running jobs stay if none is surplus: requests or batch lines justify them.
  if (spare <= 0 || want.jobs >= running.length) return [];
  return running
    .filter((job) => idleMs(job, wantedAt, now) >= idle && (job.state === 'ready' || want.jobs === 0))
    .sort((a, b) => idleMs(b, wantedAt, now) - idleMs(a, wantedAt, now))
    .slice(0, running.length - Math.max(want.floor, want.jobs));
}

/**
 * Returns the jobs above `max`, which must end. There are some after an edit of the file, or if jobs that counted as
 * lost have returned.
 */
function overMax(ours: readonly CountedJob[], max: number): CountedJob[] {
  const order = (job: CountedJob) => (isPending(job) ? 0 : job.state === 'ready' ? 2 : 1);
  return [...ours]
    .sort((a, b) => order(a) - order(b) || (b.node?.idle_ms ?? 0) - (a.node?.idle_ms ?? 0) || b.seen_at - a.seen_at)
    .slice(0, Math.max(0, ours.length - max));
}
