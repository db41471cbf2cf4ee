/** The state that a factory keeps from round to round and on disk. Everything else it reads from the schedulers. */
import * as z from 'zod';
import { jobNamePrefix } from '../../shared/factory/factory-exchange.ts';

const at = z.number();
const text = z.string().max(300);

const jobMemory = z.object({
  cluster: z.string(),
  id: z.string(),
  name: z.string(),
  context: z.string(),
  /** Absent: the job's model is not in the file. */
  model: z.string().optional(),
  pool: z.string().optional(),
  gpus: z.number(),
  /** The host on which it runs. Absent: it waits, or the scheduler does not say. */
  host: z.string().max(255).optional(),
  state: z.enum(['pending', 'starting', 'loading', 'ready', 'draining']),
  /** Time at which `state` last changed. */
  since: at,
  seen_at: at,
  began_at: at.optional(),
  ready_at: at.optional(),
  reason: text.optional(),
  /**
   * Set while the scheduler's lists do not contain the job. `since`: time of the first such list. `lists`: number of
   * such lists.
   */
  missing: z.object({ since: at, lists: z.number() }).optional(),
  /**
   * True if this factory did not run, or could not query the cluster, for a while before it last saw the job. The job
   * may have served and ended in that time.
   */
  unwatched: z.boolean().optional(),
  /** The order to end the job that this factory sent. */
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
   * `sent`: the scheduler has not answered yet. Stored before the scheduler is called, so that a factory that was
   * killed knows which jobs may exist.
   */
  outcome: z.enum(['sent', 'accepted', 'refused', 'unclear']),
  /** Ids of the submission's jobs, if the scheduler returned them. */
  ids: z.array(z.string()).max(100).default([]),
  /** Ids of the submission's jobs that a list has shown, or that count as ended without having been listed. */
  seen: z.array(z.string()).max(100),
  /** True if this factory did not run, or could not query the cluster, for a while after the submission. */
  unwatched: z.boolean().optional(),
  /** How many times the cluster has listed its jobs since the submission. */
  lists: z.number(),
});
export type SubmissionMemory = z.infer<typeof submission>;

const backOff = z.object({
  context: z.string(),
  /**
   * Numbers of consecutive failures. `failed`: starts that failed. `short`: jobs that ended too soon. `refused`:
   * submissions that were refused.
   */
  failed: z.number(),
  short: z.number(),
  refused: z.number(),
  rests: z.number(),
  /** Nothing is submitted before this time; milliseconds since the epoch. */
  until: at,
  resting: z.boolean(),
  reason: text,
  log_tail: z.string().max(2_000).optional(),
});
export type BackOff = z.infer<typeof backOff>;

/** Maximum failed jobs that are kept to be shown to people. */
export const FAILED_MAX = 100;

/** A job whose engine never served. */
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
  /** Number that the next job's name contains. */
  next: z.number(),
  /** Jobs by CLUSTER/ID. */
  jobs: z.record(z.string(), jobMemory),
  submissions: z.array(submission).max(5_000),
  /** Failed starts by MODEL@CLUSTER#CONTEXT, refusals by MODEL@CLUSTER/POOL (GPU). */
  back_offs: z.record(z.string(), backOff),
  /** Times at which an idle engine was ended because another model needed its GPUs. */
  switches: z.array(at).max(10_000),
  /** By model: when it last had demand. */
  wanted_at: z.record(z.string(), at),
  /** By model: when its replicas were last crowded, and how many jobs it wanted then. */
  growth: z.record(z.string(), z.object({ at, jobs: z.number() })).default({}),
  /**
   * `loads`: milliseconds from a job's start to its first response, by context. `waits`: milliseconds in the queue, by
   * CLUSTER/POOL. Both are means in which each new measurement has the weight 1/3.
   */
  loads: z.record(z.string(), z.number()),
  waits: z.record(z.string(), z.number()),
  /** By cluster: when it last listed its jobs. */
  listed_at: z.record(z.string(), at).default({}),
  /** Failed starts by CLUSTER/HOST. `until`: when the host gets jobs again; 0: it gets jobs. */
  hosts: z.record(z.string(), z.object({ failed: z.number(), at, until: z.number() })).default({}),
  failed: z.array(failedJob).max(FAILED_MAX).default([]),
});
export type Memory = z.infer<typeof memorySchema>;

/**
 * Returns the memory of a factory without state. Numbers of names begin at the current second, so that a name is not
 * reused after the state was deleted.
 */
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
    hosts: {},
    failed: [],
  };
}

export const jobKey = (cluster: string, id: string) => `${cluster}/${id}`;
/**
 * Returns the key of failed starts, which are counted by context. A recipe has a context for each kind of GPU, and a
 * success of one must not clear the failures of another.
 */
export const startKey = (model: string, cluster: string, context: string) => `${model}@${cluster}#${context}`;
/**
 * Returns the key of refused submissions, which are counted by pool: another pool of the cluster may accept the same
 * job.
 */
export const refusalKey = (model: string, cluster: string, { name, gpu }: { name: string; gpu: string }) =>
  `${model}@${cluster}/${name} (${gpu})`;

/** How long a submission's jobs that no list has shown count as existing. */
const SETTLE_MS = 120_000;
/**
 * Replaces SETTLE_MS for a submission without an answer. After a failover of the scheduler's controller, its jobs may
 * appear late.
 */
const UNCLEAR_MS = 300_000;
const SETTLE_LISTS = 3;

export function unseenJobs(submission: SubmissionMemory, now: number): number {
  const { outcome, count, seen } = submission;
  return outcome === 'refused' || isSettled(submission, now) ? 0 : Math.max(0, count - seen.length);
}

/** True if those jobs of the submission that no list has shown are assumed not to exist. */
export function isSettled({ outcome, at: sent, lists }: SubmissionMemory, now: number): boolean {
  return now - sent >= (outcome === 'accepted' ? SETTLE_MS : UNCLEAR_MS) && lists >= SETTLE_LISTS;
}

/** Formats a job's name: `otela-FACTORY--CONTEXT-NUMBER`. */
export const jobName = (factory: string, context: string, number: number) =>
  `${jobNamePrefix(factory)}${context}-${number.toString(36)}`;

/** Returns the context id in a job's name; undefined if the name is not of this factory. */
export function contextIn(name: string, factory: string): string | undefined {
  return /^([0-9a-f]{12})-[0-9a-z]+$/.exec(name.slice(jobNamePrefix(factory).length))?.[1];
}

/** Updates a mean with a new measurement, which gets the weight 1/3. */
export function updatedMean(known: number | undefined, measured: number): number {
  return known === undefined ? measured : Math.round(known + (measured - known) / 3);
}
