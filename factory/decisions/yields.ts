/** A job that only waits gives its place below the caps to the first replica of a model that people wait for. */
import { type Census, isPending, type Present, supply } from './census.ts';
import { ending } from './stops.ts';
import type { Action, World } from './world.ts';

/**
 * At most one a round: the newest pending job of a lower priority, or of a model that has another job.
 * @param capped by model, the clusters whose caps hold its first replica back
 */
export function yields(census: Census, capped: ReadonlyMap<string, ReadonlySet<string>>, world: World): Action[] {
  // The place of one that was cancelled is not free yet.
  if (census.jobs.some((job) => isPending(job) && job.asked !== undefined)) return [];
  const priorityOf = (model: string) => world.models.find((one) => one.model.id === model)?.model.priority ?? 0;
  const order = [...capped].sort(([a], [b]) => priorityOf(b) - priorityOf(a));
  for (const [model, clusters] of order) {
    const mayYield = (job: Present) =>
      isPending(job) &&
      clusters.has(job.cluster) &&
      job.model !== undefined &&
      job.model !== model &&
      (priorityOf(job.model) < priorityOf(model) || supply(census, job.model) > 1);
    const [newest] = census.jobs.filter(mayYield).sort((a, b) => b.seen_at - a.seen_at);
    if (newest !== undefined) return [ending(newest, `it waits, and so does the first replica of ${model}`)];
  }
  return [];
}
