/**
 * Counts the jobs that are presumed to exist: those that a list has shown, and those of submissions that no list has
 * shown yet.
 */
import type { ServingNode } from '../../shared/factory/factory-exchange.ts';
import { allPlaces, type FactoryWorld } from './factory-world.ts';
import { nodesByJob } from './observe-jobs.ts';
import { type JobMemory, type Memory, type SubmissionMemory, unseenJobs } from './persisted-state.ts';

export interface CountedJob extends JobMemory {
  key: string;
  node?: ServingNode;
  /** True if the job's model is not in the file, or its recipe was edited after the submission. */
  outdated: boolean;
}

export interface JobCensus {
  jobs: CountedJob[];
  /** Jobs of submissions without an answer that may still appear. They count as existing jobs. */
  coming: (Pick<SubmissionMemory, 'model' | 'cluster' | 'pool' | 'context' | 'gpus'> & { count: number })[];
}

export function countJobs(memory: Memory, world: FactoryWorld, now: number): JobCensus {
  const current = new Map(
    world.models.map((placed) => [placed.model.id, new Set(allPlaces(placed).map(({ context }) => context))]),
  );
  const nodes = nodesByJob(world);
  return {
    jobs: Object.entries(memory.jobs).map(([key, job]) => {
      const node = nodes.get(key);
      const outdated = job.model === undefined || current.get(job.model)?.has(job.context) !== true;
      return { ...job, key, outdated, ...(node === undefined ? {} : { node }) };
    }),
    coming: memory.submissions.flatMap((submission) => {
      const count = unseenJobs(submission, now);
      const { model, cluster, pool, context, gpus } = submission;
      return count === 0 ? [] : [{ model, cluster, pool, context, gpus, count }];
    }),
  };
}

export const isPending = ({ state }: Pick<JobMemory, 'state'>) => state === 'pending';

/** Number of a model's jobs that serve or will serve, without those that were asked to end. */
export const countSupply = ({ jobs, coming }: JobCensus, model: string): number =>
  jobs.filter((job) => job.model === model && job.asked === undefined && !job.outdated && job.state !== 'draining')
    .length + coming.filter((one) => one.model === model).reduce((sum, { count }) => sum + count, 0);

/** Number of a model's jobs that have not ended. */
export const countPresent = ({ jobs, coming }: JobCensus, model: string): number =>
  jobs.filter((job) => job.model === model).length +
  coming.filter((one) => one.model === model).reduce((sum, { count }) => sum + count, 0);
