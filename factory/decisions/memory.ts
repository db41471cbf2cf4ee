/** What a factory remembers from round to round, and after it was killed. It asks schedulers for everything else. */
import * as z from 'zod';
import { jobNamePrefix } from '../../shared/factory/factory-exchange.ts';

const at = z.number();
const text = z.string().max(300);

const jobMemory = z.object({
  cluster: z.string(),
  id: z.string(),
  name: z.string(),
  context: z.string(),
  /** absent: its model is not in the file. */
  model: z.string().optional(),
  pool: z.string().optional(),
  gpus: z.number(),
  state: z.enum(['pending', 'starting', 'loading', 'ready', 'draining']),
  /** Time of its last change of state. */
  since: at,
  seen_at: at,
  began_at: at.optional(),
  ready_at: at.optional(),
  reason: text.optional(),
  /** Number of lists of its scheduler without it, and the time of the first. */
  missing: z.object({ since: at, lists: z.number() }).optional(),
  /**
   * True if this factory did not run, or could not ask, for a while since its last look: the job may have served and
   * ended.
   */
  unwatched: z.boolean().optional(),
  /** What this factory asked the job to do. */
  asked: z.object({ at, what: z.enum(['drain', 'cancel']), why: text }).optional(),
});
export type JobMemory = z.infer<typeof jobMemory>;

const submission = z.object({
  name: z.string(),
  model: z.string(),
  cluster: z.string(),
  pool: z.string(),
  context: z.string(),
  gpus: z.number(),
  count: z.number(),
  at,
  /**
   * `sent`: no answer yet. Written before the scheduler is asked, so that a killed factory knows which jobs it may
   * find.
   */
  outcome: z.enum(['sent', 'accepted', 'refused', 'unclear']),
  /** Its jobs, if the scheduler named them. */
  ids: z.array(z.string()).max(100).default([]),
  /** Ids of its jobs that were listed, or given up. */
  seen: z.array(z.string()).max(100),
  /** As in a job. */
  unwatched: z.boolean().optional(),
  /** Lists of its cluster since then. */
  lists: z.number(),
});
export type SubmissionMemory = z.infer<typeof submission>;

const backOff = z.object({
  context: z.string(),
  /** Consecutive failures: starts that failed, jobs that were too short, submissions that were refused. */
  failed: z.number(),
  short: z.number(),
  refused: z.number(),
  rests: z.number(),
  /** Nothing is submitted before this time. */
  until: at,
  resting: z.boolean(),
  reason: text,
  log_tail: z.string().max(2_000).optional(),
});
export type BackOff = z.infer<typeof backOff>;

/** Failed jobs that are kept for people. */
export const FAILED_MAX = 100;

/** A job with an engine that did not serve. */
const failedJob = z.object({
  cluster: z.string(),
  id: z.string(),
  model: z.string(),
  gpus: z.number(),
  at,
  reason: text,
  log_tail: z.string().max(2_000).optional(),
});
export type FailedJob = z.infer<typeof failedJob>;

export const memorySchema = z.object({
  version: z.literal(1),
  /** Number of the next job's name. */
  next: z.number(),
  /** By CLUSTER/ID. */
  jobs: z.record(z.string(), jobMemory),
  submissions: z.array(submission).max(5_000),
  /** By MODEL@CLUSTER#CONTEXT, refusals by MODEL@CLUSTER/POOL (GPU). */
  back_offs: z.record(z.string(), backOff),
  /** Times at which idle engines gave their GPUs to another model. */
  switches: z.array(at).max(10_000),
  /** Time at which a model was last wanted. */
  wanted_at: z.record(z.string(), at),
  /** Time at which the replicas of a model were last crowded, and the number that it wanted then. */
  growth: z.record(z.string(), z.object({ at, jobs: z.number() })).default({}),
  /**
   * ms from a job's begin to ready, by context; ms in the queue, by CLUSTER/POOL. Each measurement has the weight 1/3.
   */
  loads: z.record(z.string(), z.number()),
  waits: z.record(z.string(), z.number()),
  /** Time at which a cluster last listed its jobs. */
  listed_at: z.record(z.string(), at).default({}),
  failed: z.array(failedJob).max(FAILED_MAX).default([]),
});
export type Memory = z.infer<typeof memorySchema>;

/** Names are numbered from the current second, so that a factory does not repeat a name after its state was removed. */
export function emptyMemory(now: number): Memory {
  return {
    version: 1,
    next: Math.floor(now / 1_000),
    jobs: {},
    submissions: [],
    back_offs: {},
    switches: [],
    wanted_at: {},
    growth: {},
    loads: {},
    waits: {},
    listed_at: {},
    failed: [],
  };
}

export const jobKey = (cluster: string, id: string) => `${cluster}/${id}`;
/**
 * Key of failed starts, which are attributed to a context. A recipe has a context for each kind of GPU, and a success
 * of one must not clear the failures of another.
 */
export const startKey = (model: string, cluster: string, context: string) => `${model}@${cluster}#${context}`;
/** Key of refused submissions, which are attributed to a pool: another pool of the cluster may accept the same job. */
export const refusalKey = (model: string, cluster: string, { name, gpu }: { name: string; gpu: string }) =>
  `${model}@${cluster}/${name} (${gpu})`;

/** Time for which a submission counts as jobs that have not been listed yet. */
const SETTLE_MS = 120_000;
/** A submission without an answer may appear after a controller's failover. */
const UNCLEAR_MS = 300_000;
const SETTLE_LISTS = 3;

export function unseenJobs(submission: SubmissionMemory, now: number): number {
  const { outcome, count, seen } = submission;
  return outcome === 'refused' || isSettled(submission, now) ? 0 : Math.max(0, count - seen.length);
}

/** Jobs of it that have not been listed by now do not exist. */
export function isSettled({ outcome, at: sent, lists }: SubmissionMemory, now: number): boolean {
  return now - sent >= (outcome === 'accepted' ? SETTLE_MS : UNCLEAR_MS) && lists >= SETTLE_LISTS;
}

/** `otela-FACTORY-CONTEXT-NUMBER`. */
export const jobName = (factory: string, context: string, number: number) =>
  `${jobNamePrefix(factory)}${context}-${number.toString(36)}`;

/** Returns the context in a job's name. */
export function contextIn(name: string, factory: string): string | undefined {
  return /^([0-9a-f]{12})-[0-9a-z]+$/.exec(name.slice(jobNamePrefix(factory).length))?.[1];
}

/** Mean of all measurements; the newest has the weight 1/3. */
export function updatedMean(known: number | undefined, measured: number): number {
  return known === undefined ? measured : Math.round(known + (measured - known) / 3);
}
