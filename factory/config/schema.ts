/** Schema of factory.toml. docs/factory.md has every key with an example. */
import * as z from 'zod';
import { timeLimitMs } from '../../node/batch-systems/time-limit.ts';
import { parametersSchema, templateNameSchema } from '../../shared/deployment/template-parameters.ts';
import { LAUNCHERS } from '../../shared/factory/factory-exchange.ts';
import { parseSource } from '../../shared/weights/weights-source.ts';
import { directory, durationSchema, oneLineSchema, oneWordSchema, slugSchema } from './value-schemas.ts';

export const ENGINES = ['vllm', 'sglang', 'lmdeploy'] as const;
export type EngineKind = (typeof ENGINES)[number];
const CONTAINERS = ['none', 'apptainer', 'enroot', 'edf'] as const;

const count = z.number().int().nonnegative().max(10_000);
const positive = z.number().int().positive().max(10_000);
const gpu = z.string().min(1).max(64);
const environment = z.record(z.string().regex(/^[A-Za-z_]\w{0,63}$/, 'not the name of a variable'), oneLineSchema);

/** Limits over all clusters that keep the load on shared schedulers low. */
const guest = z.strictObject({
  /**
   * Maximum jobs submitted to schedulers in any 60 s. With ten, a run that could use 186 GPUs would wait 18 minutes for
   * the last of them; a job a second is little work for a scheduler.
   */
  submissions_per_minute: positive.default(60),
  /**
   * Maximum number of idle engines per hour that are ended before their idle time is over, because another model needs
   * their GPUs.
   */
  switches_per_hour: count.default(6),
  max_jobs: positive.default(100),
  /** If a job ended sooner than this after its start, it counts as too short, and the next start is delayed. */
  short_lived: durationSchema.prefault('2m'),
  /** After this many consecutive failed starts of one recipe on one cluster, its starts are suspended. */
  failed_starts: positive.default(3),
  /** Duration of the first suspension; it doubles with each further one, up to a day. */
  rest: durationSchema.prefault('1h'),
  /** Interval between two rounds; in each round the factory queries the schedulers. */
  every: durationSchema.prefault('15s'),
});

const pool = z.strictObject({
  /** Slurm's partition, or the queue of Grid Engine, PBS, LSF or Flux. */
  name: oneWordSchema,
  gpu,
  /** Slurm's name of the GPU in `--gres`, if the site's jobs must specify it. */
  gres: oneWordSchema.optional(),
  gpus_per_node: positive.max(64),
  /** Number of GPUs of the whole pool; absent: unknown. */
  gpus: positive.optional(),
  /** Time limit of a job, in the batch system's format. */
  time: z
    .string()
    .refine((text) => timeLimitMs(text) !== undefined, 'not a time limit such as 04:00:00 or 1-12:00:00')
    .default('04:00:00'),
  account: oneWordSchema.optional(),
  qos: oneWordSchema.optional(),
  constraint: oneWordSchema.optional(),
  memory: oneWordSchema.optional(),
  cpus: positive.optional(),
  /** True if other users' jobs may preempt jobs on these GPUs. */
  preemptable: z.boolean().default(false),
  /** Further options of the submission, one word each. Omit the dashes if the batch system's directives have none. */
  options: z.array(oneWordSchema).max(32).default([]),
  /** Kubernetes: labels that a node must have. */
  node_selector: z.record(z.string().max(253), z.string().max(63)).optional(),
});
export type PoolConfig = z.infer<typeof pool>;

const cluster = z.strictObject({
  launcher: z.enum(LAUNCHERS),
  /** Command of the agent on the job's node, with its first arguments. */
  agent: z.array(oneLineSchema).min(1).max(16).default(['otela-agent']),
  /** Path of the join token's file on the job's node; `~/` is the home directory there. */
  join_token_file: oneLineSchema.default('~/.otela-token'),
  /** The cluster's name at the gateway. Only needed if the join token does not set it. */
  cluster: slugSchema.optional(),
  max_jobs: positive.default(20),
  /**
   * Maximum number of pending jobs of all models on this cluster. Jobs are submitted as fast as the scheduler starts
   * them, and do not flood its queue.
   */
  max_pending: positive.default(16),
  max_gpus: positive.optional(),
  /** Shell lines that run before the agent, such as `module load cuda`. */
  setup: z.array(oneLineSchema).max(64).default([]),
  environment: environment.default({}),
  /**
   * Directories that containers see under the same path; `~/` is the home directory there. HF_HOME and the agent's
   * pulled files are always included.
   */
  mounts: z.array(directory).max(32).default([]),
  /**
   * Slurm's `--clusters`, with exactly one cluster. With several, job numbers would not be unique, and scancel would
   * end the jobs with the same number on all of them.
   */
  clusters: oneWordSchema
    .refine(
      (text) => !text.includes(',') && text.toLowerCase() !== 'all',
      'names several clusters: write one [clusters.X] for each',
    )
    .optional(),
  /**
   * HTCondor: files of the factory's machine that each job gets in its directory, such as the agent and the join token.
   * Without it, jobs see the same file system.
   */
  transfer_files: z
    .array(oneLineSchema.regex(/^\/[\w.@%+=:/-]+$/, 'not an absolute path without spaces and commas'))
    .min(1)
    .max(32)
    .optional(),
  /**
   * Kubernetes: the API server, its namespace, the files of its token and certificate authority, the image with agent
   * and engine.
   */
  server: z.url({ protocol: /^https?$/ }).optional(),
  namespace: slugSchema.optional(),
  token_file: oneLineSchema.optional(),
  ca_file: oneLineSchema.optional(),
  service_account: oneWordSchema.optional(),
  /** Kubernetes: the secret that contains the join token as `token`; it is mounted at /var/run/otela. */
  secret: oneWordSchema.optional(),
  /** Idle agents: the file of an operator's API key, mode 0600. */
  key_file: oneLineSchema.optional(),
  pools: z.array(pool).min(1).max(32),
});
export type ClusterConfig = z.infer<typeof cluster> & { id: string };

const SOURCES = 'not hub:ORG/NAME[@REVISION], dir:/PATH or s3://BUCKET/PREFIX';

function isNoBrokenSource(text: string): boolean {
  return !/^(hub|dir|s3):/.test(text) || parseSource(text) !== undefined;
}

const engine = z.strictObject({
  /** Kinds of GPU on which this engine runs. In each pool the recipe's first engine that fits is used. */
  gpu: z.array(gpu).min(1).max(32),
  gpus: positive.max(64),
  /**
   * For jobs that run Python functions and no engine: the owners of these functions, as the agent's --allow-functions
   * takes them. `arguments` are then further flags of the agent.
   */
  allow_functions: z.array(oneWordSchema).min(1).max(64).optional(),
  /** The engine for which the factory generates a command, unless `command` is given. */
  engine: z.enum(ENGINES).optional(),
  arguments: z.array(oneLineSchema).max(128).default([]),
  /**
   * The engine's command, one word per element. The placeholders {{port}}, {{weights}}, {{environment}}, {{model}} and
   * {{gpus}} are replaced.
   */
  command: z.array(oneLineSchema).min(1).max(128).optional(),
  container: z.enum(CONTAINERS).default('none'),
  /**
   * Name of the deployment template of idle agents, which contains the command. The parameter `model` is the model's id
   * unless `parameters` has it.
   */
  template: templateNameSchema.optional(),
  parameters: parametersSchema.default({}),
  /** Image of the container; for `edf` the name or path of the file. If it is a source such as `hub:…`, the agent pulls it to the local disk. */
  image: oneLineSchema.refine(isNoBrokenSource, SOURCES).optional(),
  /**
   * A packed venv or conda environment, for an engine without a container. The agent pulls it to the local disk and
   * unpacks it there.
   */
  packed_environment: oneLineSchema.refine((text) => parseSource(text) !== undefined, SOURCES).optional(),
  environment: environment.default({}),
});
export type EngineConfig = z.infer<typeof engine>;

const recipe = z.strictObject({
  /**
   * The weights: a repository's name or a path, which the engine receives as it is, or a source (`hub:…`, `dir:/…`,
   * `s3://…`), which the agent pulls to the local disk. Empty for functions.
   */
  weights: oneLineSchema.refine(isNoBrokenSource, SOURCES).default(''),
  /** Assumed time from the job's start to the first response, until a start has been measured. */
  load: durationSchema.prefault('5m'),
  /** An engine that does not serve within this time after the job's start has failed. */
  ready_within: durationSchema.prefault('1h'),
  environment: environment.default({}),
  engines: z.array(engine).min(1).max(16),
});
export type RecipeConfig = z.infer<typeof recipe>;

const DAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun'] as const;
export type Weekday = (typeof DAYS)[number];
const clock = z.string().regex(/^([01]\d|2[0-3]):[0-5]\d$|^24:00$/, 'not a time of day such as 08:00');

const model = z.strictObject({
  recipe: z.string().min(1).max(128),
  min: count.default(0),
  max: positive.default(1),
  /** A replica is ended after this time without a request. */
  idle: durationSchema.prefault('10m'),
  /** If two models compete for GPUs, the model with the higher priority gets them. */
  priority: z.number().int().min(-1_000).max(1_000).default(0),
  /** Projects and keys whose requests may start this model; absent: all requests that may use it. */
  wake: z
    .strictObject({
      projects: z.array(z.string().min(1).max(128)).max(64).default([]),
      keys: z.array(z.string().min(1).max(128)).max(64).default([]),
    })
    .optional(),
  /** Hours of the week in which this many replicas are kept without requests. */
  warm: z
    .array(
      z.strictObject({
        days: z
          .array(z.enum(DAYS))
          .min(1)
          .max(7)
          .default([...DAYS]),
        from: clock,
        to: clock,
        jobs: positive.default(1),
      }),
    )
    .max(32)
    .default([]),
  /** Clusters on which this model may run; absent: all clusters with an engine for their GPUs. */
  clusters: z.array(slugSchema).max(32).optional(),
  /** Batch lines per replica. The number of lines divided by this, rounded up, is the number of wanted replicas. */
  lines_per_job: positive.default(100),
  /** If the busy share of the ready replicas is at least this, one more replica is wanted. */
  busy: z.number().min(0.1).max(1).default(0.85),
});
export type ModelConfig = z.infer<typeof model> & { id: string };

const plan = z.strictObject({
  /** Path of the plan: the output of `otela-plan plan --json`, or the file of `otela-plan watch --plan`. */
  file: oneLineSchema,
  /** A plan that was written longer ago than this is ignored. */
  max_age: durationSchema.prefault('24h'),
});

const named = <T extends z.ZodType>(key: z.ZodString, value: T, max: number, what: string) =>
  z.record(key, value).refine((table) => Object.keys(table).length <= max, `at most ${max} ${what}`);

export const fileSchema = z.strictObject({
  /** The factory's name, which is part of its jobs' names and of its reports to the gateway. */
  factory: slugSchema,
  gateway: z.url({ protocol: /^https?$/ }),
  /** The file of the factory token, mode 0600. */
  token_file: oneLineSchema,
  ca_file: oneLineSchema.optional(),
  /**
   * State directory, on a file system that jobs can also write. It contains the factory's memory and the output of
   * jobs.
   */
  state: oneLineSchema,
  /** IANA name of the time zone in which warm hours are given. */
  timezone: z
    .string()
    .refine((name) => isTimeZone(name), 'not a time zone such as Europe/Zurich')
    .default('UTC'),
  guest: guest.prefault({}),
  /** A planner's replicas, kept as if they were each model's `min`. */
  plan: plan.optional(),
  clusters: named(slugSchema, cluster, 32, 'clusters'),
  recipes: named(z.string().min(1).max(128), recipe, 200, 'recipes'),
  models: named(z.string().min(1).max(256), model, 200, 'models'),
});
type FactoryFile = z.infer<typeof fileSchema>;

function isTimeZone(name: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone: name });
    return true;
  } catch {
    return false;
  }
}

/** The parsed file. Its tables of clusters, models and recipes are lists. */
export interface FactoryConfig extends Omit<FactoryFile, 'clusters' | 'models' | 'recipes'> {
  /** First 12 hex digits of the SHA-256 of the file. */
  revision: string;
  clusters: ClusterConfig[];
  models: ModelConfig[];
  recipes: Map<string, RecipeConfig>;
}
