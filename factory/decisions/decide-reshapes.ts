/**
 * Ends replicas whose shape (GPU kind and parallelism) is not in the plan, so that replicas of planned shapes get their
 * nodes.
 */

import { obstacleOf } from './decide-starts.ts';
import { ending } from './decide-stops.ts';
import type { FactoryAction, FactoryWorld } from './factory-world.ts';
import { type CountedJob, countPresent, type JobCensus } from './job-census.ts';
import type { Memory } from './persisted-state.ts';
import { shapeDifference } from './shape-difference.ts';

/**
 * Frees agents for missing shapes of the plan: ends surplus jobs of the same model, and of other planned models. At
 * most `wave` jobs of a model change at a time.
 * @param begun models for which a job starts in this round
 */
export function decideReshapes(
  census: JobCensus,
  begun: ReadonlySet<string>,
  memory: Memory,
  world: FactoryWorld,
  now: number,
): FactoryAction[] {
  const differences = new Map(world.models.map((placed) => [placed, shapeDifference(placed, census, world)]));
  const ended = new Set<CountedJob>();
  const order = [...world.models].sort((a, b) => b.model.priority - a.model.priority);
  for (const placed of order) {
    const { id } = placed.model;
    const { missing = [] } = differences.get(placed) ?? {};
    const startable = missing
      .flatMap(({ places }) => places)
      .filter((place) => obstacleOf(place, placed, 0, census, memory, world, now) === undefined);
    if (startable.length === 0 || begun.has(id)) continue;
    let room = (world.planned?.get(id)?.wave ?? 1) - changing(census, id);
    const victims = [placed, ...world.models.filter((one) => one !== placed)].flatMap((one) => {
      const { surplus = [] } = differences.get(one) ?? {};
      const mayTake = countPresent(census, id) < placed.model.max && changing(census, one.model.id) === 0;
      return one === placed || mayTake ? surplus : [];
    });
    for (const job of victims) {
      if (room <= 0) break;
      if (
        ended.has(job) ||
        !startable.some(({ cluster, pool }) => job.cluster === cluster.id && job.pool === pool.name)
      )
        continue;
      ended.add(job);
      room--;
    }
  }
  return [...ended].map((job) => ending(job, 'the plan has another replica in its place'));
}

/** Number of a model's jobs that are ending or do not serve yet. */
function changing({ jobs, coming }: JobCensus, model: string): number {
  const own = jobs.filter((job) => job.model === model && (job.asked !== undefined || job.state !== 'ready'));
  return own.length + coming.filter((one) => one.model === model).length;
}
