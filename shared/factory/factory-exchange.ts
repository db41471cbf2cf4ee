/**
 * The exchange between a factory of jobs and a gateway: `POST /factory/exchange`, with a JSON body in each direction
 * and the factory's bearer token. The factory reports its models, jobs, clusters and decisions. The gateway answers
 * with the demand for these models and the nodes that serve them. The gateway holds the answer until its revision
 * differs from `after`, for at most `wait_ms`. If the same factory starts a new exchange, the one that still waits
 * ends. Times are durations in ms and never instants, because clusters' clocks differ; only `at` of decisions and of
 * day points is an instant.
 */
import * as z from 'zod';

export const EXCHANGE_PATH = '/factory/exchange';
/** Maximum size of a body in either direction. A report with every field at its limit has 3/4 of this size. */
export const EXCHANGE_MAX_BYTES = 2 * 1024 * 1024;
/** Maximum time that a gateway holds an answer. Proxies end idle requests after 30 s. */
export const EXCHANGE_WAIT_MAX_MS = 25_000;
/**
 * If a factory has been silent for this long, a gateway no longer relies on it, and does not consider its cold models
 * startable.
 */
export const FACTORY_SILENT_AFTER_MS = 90_000;
/** `otf_` and 32 bytes in base64url. A gateway stores only the token's SHA-256. */
export const FACTORY_TOKEN_PATTERN = /^otf_[A-Za-z0-9_-]{43}$/;

export const MODELS_MAX = 200;
/** Maximum number of jobs in a report. If there are more, ended jobs are omitted first. */
export const JOBS_MAX = 2_000;
export const DECISIONS_MAX = 200;
const CLUSTERS_MAX = 32;
/** Maximum GPU classes of a cluster, which has at most 32 pools. */
const CLASSES_MAX = 32;
/** The launchers of a factory's jobs: batch systems, or idle agents. */
export const LAUNCHERS = ['slurm', 'kubernetes', 'grid-engine', 'htcondor', 'pbs', 'lsf', 'flux', 'agents'] as const;
export const DAY_POINTS_MAX = 288;
export const NODES_MAX = 2_000;
/** Maximum length of a sentence for people. The sender cuts longer ones. */
export const TEXT_MAX = 300;
/** Maximum length of the end of a failed job's log, in UTF-16 units. */
export const LOG_TAIL_MAX = 2_000;

const id = z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/);
const model = z.string().min(1).max(256);
const text = z.string().max(TEXT_MAX);
const job = z.string().min(1).max(64);
const count = z.number().int().nonnegative();
const ms = z.number().nonnegative();
const share = z.number().min(0).max(1);

/**
 * State of a model, which is the state of its most advanced job. `cold`: it has no job, and a request starts one.
 * `queued`: a job waits in the scheduler. `starting`: a job runs, but its engine has not answered yet. `loading`: the
 * engine reads weights. `ready`: at least one job serves. `resting`: its jobs failed too often, so an operator must
 * look.
 */
const MODEL_STATES = ['cold', 'queued', 'starting', 'loading', 'ready', 'resting'] as const;
export type ModelState = (typeof MODEL_STATES)[number];

/** State of a job. `unknown`: its cluster does not answer; the job counts as existing. */
const JOB_STATES = ['pending', 'starting', 'loading', 'ready', 'draining', 'ended', 'failed', 'unknown'] as const;

export const modelReport = z.object({
  id: model,
  state: z.enum(MODEL_STATES),
  min: count,
  max: count,
  pending: count,
  /** Number of jobs that have started, including ready ones. */
  running: count,
  ready: count,
  /** Milliseconds until a job of this model first answers, if it exists or is started now. Absent if unknown. */
  estimate_ms: ms.optional(),
  /** Share of the weights that the model's most advanced job has read. */
  progress: share.optional(),
  /** What the model waits for, or why it is resting. */
  reason: text.optional(),
  /** Projects and keys that may start the model with a request. Absent if all that may use it may also start it. */
  wake: z
    .object({ projects: z.array(z.string().max(128)).max(64), keys: z.array(z.string().max(128)).max(64) })
    .optional(),
});
export type ModelReport = z.infer<typeof modelReport>;

export const jobReport = z.object({
  cluster: id,
  /** The id that the launcher gave the job. */
  id: job,
  model,
  state: z.enum(JOB_STATES),
  gpus: count,
  /** GPU class, for example `H100`. */
  gpu: z.string().max(32).optional(),
  /** Milliseconds since the job entered this state. */
  since_ms: ms,
  reason: text.optional(),
  /** For a failed job: the end of its output. */
  log_tail: z.string().max(LOG_TAIL_MAX).optional(),
});
export type JobReport = z.infer<typeof jobReport>;

export const clusterReport = z.object({
  id,
  launcher: z.string().max(32),
  /** False if the cluster did not answer. Then nothing is concluded about its jobs. */
  reachable: z.boolean(),
  reason: text.optional(),
  pending: count,
  running: count,
  /** Number of GPUs that a job could get now. Absent if the launcher does not know. */
  idle_gpus: count.optional(),
  /** The same by GPU class, if the factory knows the classes of the cluster's pools. */
  idle_gpus_by_class: z
    .record(z.string().max(32), count)
    .refine((classes) => Object.keys(classes).length <= CLASSES_MAX, `at most ${CLASSES_MAX} classes`)
    .optional(),
});
export type ClusterReport = z.infer<typeof clusterReport>;

export const decisionReport = z.object({
  at: z.iso.datetime(),
  model: model.optional(),
  /** What was done or not done, and why. */
  text,
});
export type DecisionReport = z.infer<typeof decisionReport>;

/** Values of one period of five minutes within the last day. The points of a day are ordered, oldest first. */
export const dayPoint = z.object({
  at: z.iso.datetime(),
  /** GPUs of running, ready and waiting jobs, and idle GPUs of the clusters. */
  running: count,
  ready: count,
  pending: count,
  idle: count.optional(),
  /** Maximum number of waiting requests in the five minutes. */
  waiting: count,
});
export type DayPoint = z.infer<typeof dayPoint>;

export const factoryReport = z.object({
  version: z.literal(1),
  factory: id,
  /** The first 12 hex digits of the configuration file's SHA-256. */
  config_revision: z.string().max(64),
  /** The revision of the last answer. Absent if there was none; then the gateway answers immediately. */
  after: z.string().max(64).optional(),
  wait_ms: ms.max(EXCHANGE_WAIT_MAX_MS),
  models: z.array(modelReport).max(MODELS_MAX),
  jobs: z.array(jobReport).max(JOBS_MAX),
  clusters: z.array(clusterReport).max(CLUSTERS_MAX),
  /** Decisions, newest last. */
  decisions: z.array(decisionReport).max(DECISIONS_MAX),
  /** Sent if there is a new point, and with the first report after an error. */
  day: z.array(dayPoint).max(DAY_POINTS_MAX).optional(),
  /**
   * Sessions of this factory's jobs that must drain and end. The gateway signs the order. The request is repeated until
   * the sessions are gone.
   */
  drain: z.array(z.object({ session: z.string().max(64), why: text })).max(256),
});
export type FactoryReport = z.infer<typeof factoryReport>;

export const modelDemand = z.object({
  model,
  /** Number of requests that wait for this model to start. */
  waiting: count,
  oldest_wait_ms: ms,
  /**
   * Milliseconds since the last request for this model by a key that may start it. Requests that were refused with
   * `model_starting` count. Absent if there was none within a day.
   */
  asked_ms_ago: ms.optional(),
  /** Number of requests that wait in the model's queue although replicas are ready. */
  queued: count,
  in_flight: count,
  /** Share of the capacity of the model's ready replicas that is in use. 0 if no replica is ready. */
  busy: share,
  ready_replicas: count,
  /** Unanswered lines of batches. Absent: none. */
  batch: z
    .object({
      lines: count,
      /** Tokens of the prompts and answers of these lines, as far as they can be estimated. */
      tokens: count.optional(),
      /** Milliseconds to the earliest deadline of these batches. */
      deadline_ms: ms.optional(),
      /** Lines that all ready replicas together finish per second now. */
      lines_per_s: z.number().nonnegative().optional(),
    })
    .optional(),
  /** Numbers of replicas that plans or forecasts ask for. The factory takes the maximum, within its own limits. */
  wanted: z
    .array(z.object({ from: z.string().max(64), replicas: count, for_ms: ms.optional() }))
    .max(8)
    .optional(),
});
export type ModelDemand = z.infer<typeof modelDemand>;

const servingNode = z.object({
  session: z.string().max(64),
  cluster: z.string().max(63).optional(),
  /** The job's id at its launcher, as the agent found it in its environment. Absent: none. */
  job: job.optional(),
  model: model.optional(),
  state: z.enum(['joining', 'loading', 'ready', 'draining']),
  /** Share of the weights that was read, if `loading`. */
  progress: share.optional(),
  in_flight: count,
  /** Milliseconds since the node last had a request or a batch line; 0 while it has one. */
  idle_ms: ms,
  /** Labels that the node's operator set. `factory` and `context` say which factory and recipe started it. */
  labels: z.record(z.string(), z.string()).optional(),
});
export type ServingNode = z.infer<typeof servingNode>;

export const exchangeAnswer = z.object({
  version: z.literal(1),
  revision: z.string().max(64),
  /** Demand for the models of the report. If a model is not listed, it has none. */
  demand: z.array(modelDemand).max(MODELS_MAX),
  /**
   * Nodes of the factory's provider, and those that the factory ordered from others. Those of its own jobs come first.
   */
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

/** Label that a factory's job gives its agent, by which both sides recognize it. */
export const FACTORY_LABEL = 'factory';
/** Label with CLUSTER/ID of the job, as the factory names them. */
export const JOB_LABEL = 'factory-job';
/** Prefix of the names of a factory's jobs and deployments. The dashes at its end distinguish `pool` from `pool-2`. */
export const jobNamePrefix = (factory: string): string => `otela-${factory}--`;
/** Label of a node that runs functions and no engine. A factory's job of functions gives it the value `on`. */
export const FUNCTIONS_LABEL = 'functions';
/** Label with the first 12 hex digits of the recipe's hash. */
export const CONTEXT_LABEL = 'context';
