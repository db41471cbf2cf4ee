/**
 * What a factory of jobs and a gateway tell each other: `POST /factory/exchange`, a JSON body each way, bearer token of the factory.
 * The factory reports its models, jobs, clusters and decisions; the gateway answers with the demand for those models and with the nodes that
 * serve them. The gateway holds the answer until its revision differs from `after`, `wait_ms` at most. A newer exchange of the same factory
 * ends an older one that still waits. Times are spans in ms, never instants, except where a field ends in `_at`: clocks of clusters differ.
 */
import * as z from 'zod';

export const EXCHANGE_PATH = '/factory/exchange';
/** Of a body, either way. A report at all bounds below has 3/4 of it. */
export const EXCHANGE_MAX_BYTES = 2 * 1024 * 1024;
/** Longest time that a gateway holds an answer: proxies cut idle requests after 30 s. */
export const EXCHANGE_WAIT_MAX_MS = 25_000;
/** A gateway that has heard nothing of a factory for so long does not count on it: its cold models start no more. */
export const FACTORY_SILENT_AFTER_MS = 90_000;
/** `otf_` and 32 bytes in base64url; a gateway stores SHA-256 of it alone. */
export const FACTORY_TOKEN_PATTERN = /^otf_[A-Za-z0-9_-]{43}$/;

export const MODELS_MAX = 200;
/** Of a report. What has ended is dropped first. */
export const JOBS_MAX = 2_000;
export const DECISIONS_MAX = 200;
const CLUSTERS_MAX = 32;
export const DAY_POINTS_MAX = 288;
export const NODES_MAX = 2_000;
/** Sentences for people. Longer ones are cut by the sender. */
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
 * Of a model, as its best job is. `cold`: no job; a request starts one. `queued`: a job waits for its place. `starting`: a job runs, its engine has
 * not answered yet. `loading`: the engine reads weights. `ready`: one job at least serves. `resting`: it failed too often; a person has to look.
 */
const MODEL_STATES = ['cold', 'queued', 'starting', 'loading', 'ready', 'resting'] as const;
export type ModelState = (typeof MODEL_STATES)[number];

/** Of one job. `unknown`: its cluster cannot be asked; it counts as there. */
const JOB_STATES = ['pending', 'starting', 'loading', 'ready', 'draining', 'ended', 'failed', 'unknown'] as const;

export const modelReport = z.object({
  id: model,
  state: z.enum(MODEL_STATES),
  min: count,
  max: count,
  pending: count,
  /** Jobs that have begun, ready ones among them. */
  running: count,
  ready: count,
  /** From now to the first answer that a job which is there, or one that began now, could give; absent: not known. */
  estimate_ms: ms.optional(),
  /** Of the weights that its best job has read. */
  progress: share.optional(),
  /** What it waits for, or why it rests. */
  reason: text.optional(),
  /** Ids of projects and keys whose requests may start it; absent: all that may use it. */
  wake: z
    .object({ projects: z.array(z.string().max(128)).max(64), keys: z.array(z.string().max(128)).max(64) })
    .optional(),
});
export type ModelReport = z.infer<typeof modelReport>;

export const jobReport = z.object({
  cluster: id,
  /** The launcher's own. */
  id: job,
  model,
  state: z.enum(JOB_STATES),
  gpus: count,
  /** GPU class: `H100`. */
  gpu: z.string().max(32).optional(),
  /** In this state. */
  since_ms: ms,
  reason: text.optional(),
  /** Of a job that failed: what it printed last. */
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
  /** GPUs that a job could have now; absent: the launcher cannot say. */
  idle_gpus: count.optional(),
});
export type ClusterReport = z.infer<typeof clusterReport>;

export const decisionReport = z.object({
  at: z.iso.datetime(),
  model: model.optional(),
  /** What was done, or not, and why. */
  text,
});
export type DecisionReport = z.infer<typeof decisionReport>;

/** Five minutes of the last day, oldest first. */
export const dayPoint = z.object({
  at: z.iso.datetime(),
  /** GPUs: of jobs that run, that are ready, that wait, that are idle on the clusters. */
  running: count,
  ready: count,
  pending: count,
  idle: count.optional(),
  /** Requests that waited, most of the five minutes. */
  waiting: count,
});
export type DayPoint = z.infer<typeof dayPoint>;

export const factoryReport = z.object({
  version: z.literal(1),
  factory: id,
  /** Of the configuration file: the first 12 hex digits of its SHA-256. */
  config_revision: z.string().max(64),
  /** The answer's revision that the factory knows; absent: it knows none, and is answered at once. */
  after: z.string().max(64).optional(),
  wait_ms: ms.max(EXCHANGE_WAIT_MAX_MS),
  models: z.array(modelReport).max(MODELS_MAX),
  jobs: z.array(jobReport).max(JOBS_MAX),
  clusters: z.array(clusterReport).max(CLUSTERS_MAX),
  /** Newest last. */
  decisions: z.array(decisionReport).max(DECISIONS_MAX),
  /** Comes when a point is new, and with the first report after an error. */
  day: z.array(dayPoint).max(DAY_POINTS_MAX).optional(),
  /** Sessions of this factory's jobs that shall take nothing new and end. The gateway signs the order; asked again until they are gone. */
  drain: z.array(z.object({ session: z.string().max(64), why: text })).max(256),
});
export type FactoryReport = z.infer<typeof factoryReport>;

export const modelDemand = z.object({
  model,
  /** Requests that wait for this model to start. */
  waiting: count,
  oldest_wait_ms: ms,
  /** Since a request last asked for it that may start it, one that was answered `model_starting` included; absent: not within a day. */
  asked_ms_ago: ms.optional(),
  /** Requests that wait in its queue though replicas are ready. */
  queued: count,
  in_flight: count,
  /** Of what its ready replicas can take; 0 where none is ready. */
  busy: share,
  ready_replicas: count,
  /** Lines of batches that are not yet answered; absent: none. */
  batch: z
    .object({
      lines: count,
      /** Prompt and answer, as far as they can be estimated. */
      tokens: count.optional(),
      /** Of the batch that ends first. */
      deadline_ms: ms.optional(),
      /** That all ready replicas answer now. */
      lines_per_s: z.number().nonnegative().optional(),
    })
    .optional(),
  /** Replicas that a plan or a forecast asks for. The factory takes the most of all, within its own bounds. */
  wanted: z
    .array(z.object({ from: z.string().max(64), replicas: count, for_ms: ms.optional() }))
    .max(8)
    .optional(),
});
export type ModelDemand = z.infer<typeof modelDemand>;

const servingNode = z.object({
  session: z.string().max(64),
  cluster: z.string().max(63).optional(),
  /** The launcher's id, as the agent found it in its environment; absent: it found none. */
  job: job.optional(),
  model: model.optional(),
  state: z.enum(['joining', 'loading', 'ready', 'draining']),
  /** Of the weights, where `loading`. */
  progress: share.optional(),
  in_flight: count,
  /** Without any request and any line of a batch; 0 while it answers one. */
  idle_ms: ms,
  /** Of its operator: `factory` and `context` say which factory and recipe began it. */
  labels: z.record(z.string(), z.string()).optional(),
});
export type ServingNode = z.infer<typeof servingNode>;

export const exchangeAnswer = z.object({
  version: z.literal(1),
  revision: z.string().max(64),
  /** Of the report's models; one that is left out has no demand. */
  demand: z.array(modelDemand).max(MODELS_MAX),
  /** Of all providers that the factory's token may see; those of its own jobs among them. */
  nodes: z.array(servingNode).max(NODES_MAX),
});
export type ExchangeAnswer = z.infer<typeof exchangeAnswer>;

export class ExchangeError extends Error {
  override name = 'ExchangeError';
}

/** @throws ExchangeError with the place of the first fault */
export function parseReport(value: unknown): FactoryReport {
  return parsed(factoryReport, value, 'report');
}

/** @throws ExchangeError with the place of the first fault */
export function parseAnswer(value: unknown): ExchangeAnswer {
  return parsed(exchangeAnswer, value, 'answer');
}

function parsed<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const [fault] = read.error.issues;
  throw new ExchangeError(`${what}${fault === undefined ? '' : `.${fault.path.join('.')}: ${fault.message}`}`);
}

/** Labels that a factory's job gives its agent, and by which both sides know it again. */
export const FACTORY_LABEL = 'factory';
/** CLUSTER/ID of the job, by the factory's own names. */
export const JOB_LABEL = 'factory-job';
/** First 12 hex digits of the recipe's hash. */
export const CONTEXT_LABEL = 'context';
