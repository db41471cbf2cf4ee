/**
 * The exchange between a factory of jobs and a gateway: `POST /factory/exchange`, a JSON body each way, with the
 * factory's bearer token. The factory reports its models, jobs, clusters and decisions. The gateway answers with the
 * demand for those models and the nodes that serve them. The gateway holds the answer until its revision differs from
 * `after`, at most for `wait_ms`. A newer exchange of the same factory ends an older one that still waits. Times are
 * durations in ms, never instants, except in fields that end in `_at`, because clusters' clocks differ.
 */
import * as z from 'zod';

export const EXCHANGE_PATH = '/factory/exchange';
/** Size of a body, either way. A report with every field at its limit has 3/4 of it. */
export const EXCHANGE_MAX_BYTES = 2 * 1024 * 1024;
/** Longest time that a gateway holds an answer: proxies cut idle requests after 30 s. */
export const EXCHANGE_WAIT_MAX_MS = 25_000;
/** After this silence a gateway does not count on a factory any more: its cold models do not start. */
export const FACTORY_SILENT_AFTER_MS = 90_000;
/** `otf_` and 32 bytes in base64url; a gateway stores only its SHA-256. */
export const FACTORY_TOKEN_PATTERN = /^otf_[A-Za-z0-9_-]{43}$/;

export const MODELS_MAX = 200;
/** Limits of a report. Ended jobs are dropped first. */
export const JOBS_MAX = 2_000;
export const DECISIONS_MAX = 200;
const CLUSTERS_MAX = 32;
/** What a factory hands jobs to: batch systems, or idle agents. */
export const LAUNCHERS = ['slurm', 'kubernetes', 'grid-engine', 'htcondor', 'pbs', 'lsf', 'flux', 'agents'] as const;
export const DAY_POINTS_MAX = 288;
export const NODES_MAX = 2_000;
/** Sentences for people. The sender cuts longer ones. */
export const TEXT_MAX = 300;
/** End of a failed job's log, in UTF-16 units. */
export const LOG_TAIL_MAX = 2_000;

const id = z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/);
const model = z.string().min(1).max(256);
const text = z.string().max(TEXT_MAX);
const job = z.string().min(1).max(64);
const count = z.number().int().nonnegative();
const ms = z.number().nonnegative();
const share = z.number().min(0).max(1);

/**
 * State of a model, taken from its most advanced job. `cold`: no job; a request starts one. `queued`: a job waits in
 * the scheduler. `starting`: a job runs, but its engine has not answered yet. `loading`: the engine reads weights.
 * `ready`: at least one job serves. `resting`: it failed too often; an operator must look.
 */
const MODEL_STATES = ['cold', 'queued', 'starting', 'loading', 'ready', 'resting'] as const;
export type ModelState = (typeof MODEL_STATES)[number];

/** State of a job. `unknown`: its cluster cannot be asked; it counts as existing. */
const JOB_STATES = ['pending', 'starting', 'loading', 'ready', 'draining', 'ended', 'failed', 'unknown'] as const;

export const modelReport = z.object({
  id: model,
  state: z.enum(MODEL_STATES),
  min: count,
  max: count,
  pending: count,
  /** Jobs that have started, including ready ones. */
  running: count,
  ready: count,
  /** Time until the first answer of an existing job, or of one started now; absent: unknown. */
  estimate_ms: ms.optional(),
  /** Share of the weights that its most advanced job has read. */
  progress: share.optional(),
  /** What it waits for, or why it rests. */
  reason: text.optional(),
  /** Projects and keys whose requests may start it; absent: all that may use it. */
  wake: z
    .object({ projects: z.array(z.string().max(128)).max(64), keys: z.array(z.string().max(128)).max(64) })
    .optional(),
});
export type ModelReport = z.infer<typeof modelReport>;

export const jobReport = z.object({
  cluster: id,
  /** The launcher's id. */
  id: job,
  model,
  state: z.enum(JOB_STATES),
  gpus: count,
  /** GPU class: `H100`. */
  gpu: z.string().max(32).optional(),
  /** Time in this state. */
  since_ms: ms,
  reason: text.optional(),
  /** For a failed job: the end of its output. */
  log_tail: z.string().max(LOG_TAIL_MAX).optional(),
});
export type JobReport = z.infer<typeof jobReport>;

export const clusterReport = z.object({
  id,
  launcher: z.string().max(32),
  /** False: it did not answer, and nothing is concluded from that. */
  reachable: z.boolean(),
  reason: text.optional(),
  pending: count,
  running: count,
  /** GPUs that a job could get now; absent: the launcher cannot tell. */
  idle_gpus: count.optional(),
});
export type ClusterReport = z.infer<typeof clusterReport>;

export const decisionReport = z.object({
  at: z.iso.datetime(),
  model: model.optional(),
  /** What was done or not done, and why. */
  text,
});
export type DecisionReport = z.infer<typeof decisionReport>;

/** Five minutes of the last day, oldest first. */
export const dayPoint = z.object({
  at: z.iso.datetime(),
  /** GPUs of running, ready and waiting jobs, and idle GPUs of the clusters. */
  running: count,
  ready: count,
  pending: count,
  idle: count.optional(),
  /** Waiting requests, maximum of the five minutes. */
  waiting: count,
});
export type DayPoint = z.infer<typeof dayPoint>;

export const factoryReport = z.object({
  version: z.literal(1),
  factory: id,
  /** The first 12 hex digits of the configuration file's SHA-256. */
  config_revision: z.string().max(64),
  /** The revision of the last answer; absent: none, so the answer comes immediately. */
  after: z.string().max(64).optional(),
  wait_ms: ms.max(EXCHANGE_WAIT_MAX_MS),
  models: z.array(modelReport).max(MODELS_MAX),
  jobs: z.array(jobReport).max(JOBS_MAX),
  clusters: z.array(clusterReport).max(CLUSTERS_MAX),
  /** Newest last. */
  decisions: z.array(decisionReport).max(DECISIONS_MAX),
  /** Sent when a point is new, and with the first report after an error. */
  day: z.array(dayPoint).max(DAY_POINTS_MAX).optional(),
  /**
   * Sessions of this factory's jobs that must drain and end. The gateway signs the order; the request is repeated until
   * they are gone.
   */
  drain: z.array(z.object({ session: z.string().max(64), why: text })).max(256),
});
export type FactoryReport = z.infer<typeof factoryReport>;

export const modelDemand = z.object({
  model,
  /** Requests that wait for this model to start. */
  waiting: count,
  oldest_wait_ms: ms,
  /**
   * Time since the last request that may start it, including those answered with `model_starting`; absent: none within
   * a day.
   */
  asked_ms_ago: ms.optional(),
  /** Requests that wait in its queue although replicas are ready. */
  queued: count,
  in_flight: count,
  /** Share of its ready replicas' capacity; 0 if none is ready. */
  busy: share,
  ready_replicas: count,
  /** Unanswered batch lines; absent: none. */
  batch: z
    .object({
      lines: count,
      /** Prompt and answer, as far as they can be estimated. */
      tokens: count.optional(),
      /** Of the batch with the earliest deadline. */
      deadline_ms: ms.optional(),
      /** Current rate of all ready replicas. */
      lines_per_s: z.number().nonnegative().optional(),
    })
    .optional(),
  /** Replicas that a plan or a forecast asks for. The factory takes the maximum, within its own limits. */
  wanted: z
    .array(z.object({ from: z.string().max(64), replicas: count, for_ms: ms.optional() }))
    .max(8)
    .optional(),
});
export type ModelDemand = z.infer<typeof modelDemand>;

const servingNode = z.object({
  session: z.string().max(64),
  cluster: z.string().max(63).optional(),
  /** The launcher's job id, as the agent found it in its environment; absent: none. */
  job: job.optional(),
  model: model.optional(),
  state: z.enum(['joining', 'loading', 'ready', 'draining']),
  /** Share of the weights, if `loading`. */
  progress: share.optional(),
  in_flight: count,
  /** Time without requests and batch lines; 0 while it answers one. */
  idle_ms: ms,
  /** Set by its operator: `factory` and `context` say which factory and recipe started it. */
  labels: z.record(z.string(), z.string()).optional(),
});
export type ServingNode = z.infer<typeof servingNode>;

export const exchangeAnswer = z.object({
  version: z.literal(1),
  revision: z.string().max(64),
  /** For the report's models; an absent one has no demand. */
  demand: z.array(modelDemand).max(MODELS_MAX),
  /** Of the factory's provider, and those that the factory ordered of others; those of its own jobs come first. */
  nodes: z.array(servingNode).max(NODES_MAX),
});
export type ExchangeAnswer = z.infer<typeof exchangeAnswer>;

export class ExchangeError extends Error {
  override name = 'ExchangeError';
}

/** @throws ExchangeError with the position of the first error */
export function parseReport(value: unknown): FactoryReport {
  return parsed(factoryReport, value, 'report');
}

/** @throws ExchangeError with the position of the first error */
export function parseExchangeAnswer(value: unknown): ExchangeAnswer {
  return parsed(exchangeAnswer, value, 'answer');
}

function parsed<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const [fault] = read.error.issues;
  throw new ExchangeError(`${what}${fault === undefined ? '' : `.${fault.path.join('.')}: ${fault.message}`}`);
}

/** Labels that a factory's job gives its agent, by which both sides recognize it. */
export const FACTORY_LABEL = 'factory';
/** CLUSTER/ID of the job, as the factory names them. */
export const JOB_LABEL = 'factory-job';
/** Prefix of the names of a factory's jobs and deployments. The dashes at its end separate `pool` from `pool-2`. */
export const jobNamePrefix = (factory: string): string => `otela-${factory}--`;
/** First 12 hex digits of the recipe's hash. */
export const CONTEXT_LABEL = 'context';
