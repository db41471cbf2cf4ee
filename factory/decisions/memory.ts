/** What a factory remembers from round to round, and after it was killed. Schedulers are asked for all else. */
import * as z from 'zod';
import { jobNamePrefix } from '../../shared/factory/exchange.ts';

const at = z.number();
const text = z.string().max(300);

const jobMemory = z.object({
  cluster: z.string(),
  id: z.string(),
  name: z.string(),
  context: z.string(),
  /** Absent: of no model of the file. */
  model: z.string().optional(),
  pool: z.string().optional(),
  gpus: z.number(),
  state: z.enum(['pending', 'starting', 'loading', 'ready', 'draining']),
  /** Of this state. */
  since: at,
  seen_at: at,
  began_at: at.optional(),
  ready_at: at.optional(),
  reason: text.optional(),
  /** Its scheduler answered without naming it, so often and since then. */
  missing: z.object({ since: at, lists: z.number() }).optional(),
  /** This factory did not run, or could not ask, for a while since its last look: it may have served and ended. */
  unwatched: z.boolean().optional(),
  /** What this factory asked of it. */
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
  /** `sent`: no word yet. Written before the scheduler is asked, so that a killed factory knows of what it may find. */
  outcome: z.enum(['sent', 'accepted', 'refused', 'unclear']),
  /** Its jobs, where the scheduler named them. */
  ids: z.array(z.string()).max(100).default([]),
  /** Ids of its jobs that were listed, or given up. */
  seen: z.array(z.string()).max(100),
  /** As of a job. */
  unwatched: z.boolean().optional(),
  /** Lists of its cluster since. */
  lists: z.number(),
});
export type SubmissionMemory = z.infer<typeof submission>;

const backOff = z.object({
  context: z.string(),
  /** In a row: starts that failed, jobs that lived too short, submissions that were refused. */
  failed: z.number(),
  short: z.number(),
  refused: z.number(),
  rests: z.number(),
  /** Nothing is submitted before. */
  until: at,
  resting: z.boolean(),
  reason: text,
  log_tail: z.string().max(2_000).optional(),
});
export type BackOff = z.infer<typeof backOff>;

/** Of those that are shown to people. */
export const FAILED_MAX = 100;

/** A job whose engine did not serve. */
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
  /** Of the next job's name. */
  next: z.number(),
  /** By CLUSTER/ID. */
  jobs: z.record(z.string(), jobMemory),
  submissions: z.array(submission).max(5_000),
  /** By MODEL@CLUSTER#CONTEXT, refusals by MODEL@CLUSTER/POOL (GPU). */
  back_offs: z.record(z.string(), backOff),
  /** When idle engines gave their GPUs to another model. */
  switches: z.array(at).max(10_000),
  /** When a model was last wanted. */
  wanted_at: z.record(z.string(), at),
  /** When the replicas of a model were last crowded, and how many it wanted then. */
  growth: z.record(z.string(), z.object({ at, jobs: z.number() })).default({}),
  /** ms from a job's begin to ready, by context; ms in the queue, by CLUSTER/POOL. Each measurement counts 1/3. */
  loads: z.record(z.string(), z.number()),
  waits: z.record(z.string(), z.number()),
  /** When a cluster last listed its jobs. */
  listed_at: z.record(z.string(), at).default({}),
  failed: z.array(failedJob).max(FAILED_MAX).default([]),
});
export type Memory = z.infer<typeof memorySchema>;

/** Names go on from the second in which it began: one whose state was removed gives none a second time. */
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
/** Of starts, which a context is guilty of: a recipe has one for each kind of GPU, and one must not forget what happened to the other. */
export const startKey = (model: string, cluster: string, context: string) => `${model}@${cluster}#${context}`;
/** Of refused submissions, which a pool is guilty of: another pool of the cluster may take the same job. */
export const refusalKey = (model: string, cluster: string, { name, gpu }: { name: string; gpu: string }) =>
  `${model}@${cluster}/${name} (${gpu})`;

/** A submission counts as so many jobs that have not been seen yet. */
const SETTLE_MS = 120_000;
/** One that had no answer may show after a controller's failover. */
const UNCLEAR_MS = 300_000;
const SETTLE_LISTS = 3;

export function unseenJobs(submission: SubmissionMemory, now: number): number {
  const { outcome, count, seen } = submission;
  return outcome === 'refused' || isSettled(submission, now) ? 0 : Math.max(0, count - seen.length);
}

/** Whatever of its jobs has not been listed by now is not there. */
export function isSettled({ outcome, at: sent, lists }: SubmissionMemory, now: number): boolean {
  return now - sent >= (outcome === 'accepted' ? SETTLE_MS : UNCLEAR_MS) && lists >= SETTLE_LISTS;
}

/** `otela-FACTORY-CONTEXT-NUMBER`. */
export const jobName = (factory: string, context: string, number: number) =>
  `${jobNamePrefix(factory)}${context}-${number.toString(36)}`;

/** The context in a job's name. */
export function contextIn(name: string, factory: string): string | undefined {
  return /^([0-9a-f]{12})-[0-9a-z]+$/.exec(name.slice(jobNamePrefix(factory).length))?.[1];
}

/** Mean of what was measured, the newest third. */
export function updatedMean(known: number | undefined, measured: number): number {
  return known === undefined ? measured : Math.round(known + (measured - known) / 3);
}
