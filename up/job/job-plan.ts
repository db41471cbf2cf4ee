/** The model's job, by the factory's recipe. */

import { fileSchema } from '../../factory/config/schema.ts';
import { batchLauncher } from '../../factory/launchers/batch-launcher.ts';
import type { Launcher, Submission } from '../../factory/launchers/launcher.ts';
import { jobContext, jobContextId } from '../../factory/recipes/job-context.ts';
import { scriptBody } from '../../factory/recipes/job-script.ts';
import { slurm } from '../../node/batch-systems/slurm.ts';
import { timeLimitMs } from '../../node/batch-systems/time-limit.ts';
import type { RunCommand } from '../../node/command-runner.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { THIS_MACHINE } from '../host/host.ts';
import { ENGINE_NAMES } from '../site/found-engines.ts';
import type { GpuPool, LoginNode } from '../site/site.ts';
import { type Run, runDirectory, WAITING } from '../state/runs.ts';
import { TUNNEL_URL } from '../tunnel/tunnel-identity.ts';
import { UpError } from '../up-error.ts';
import { offerLines } from './node-offer.ts';

export interface EngineWish {
  engine: string | undefined;
  /** The engine's command; absent: the recipe's command for the engine. */
  command: readonly string[] | undefined;
  /** True if the command is that of `otela up` for a GGUF file. */
  needsLlama: boolean;
  arguments: readonly string[];
  /** Apptainer image in which the engine runs. */
  image: string | undefined;
  gpus: number;
  account: string | undefined;
  /** Lines that run before the engine. */
  setup: readonly string[];
  sbatchOptions: readonly string[];
  /** True if the weights are in the cache, so the engine asks no hub. */
  isOffline: boolean;
}

/** Tries of a job to read the token, ten each second: as long as a gateway may take to start. */
const TOKEN_TRIES = 3_000;

/** Name of a run's job. */
export const runJobName = ({ id }: Pick<Run, 'id'>): string => `otela-up-${id}`;

/** Seconds before the end at which the recipe's jobs drain; shorter jobs drain in the last 20th of their time. */
const DRAIN_S = 120;
const DRAIN_SHARE = 20;
const DRAIN_MIN_S = 10;

/** The program of llama.cpp that serves a GGUF file. It asks for the key in this variable. */
export const LLAMA_SERVER = 'llama-server';
const LLAMA_KEY = [
  "LLAMA_API_KEY=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \\n')",
  'export LLAMA_API_KEY OTELA_ENGINE_KEY=$LLAMA_API_KEY',
];

/** @throws UpError if the host has no engine */
export function chooseEngine(
  { programs, host }: Pick<LoginNode, 'programs' | 'host'>,
  wish: EngineWish,
): string | undefined {
  if (wish.needsLlama && !programs.has(LLAMA_SERVER) && wish.image === undefined)
    throw new UpError(
      `${host} has no ${LLAMA_SERVER} on its PATH, in its modules or in your environments.`,
      `Install llama.cpp there, or give the line that loads it: --setup 'module load llama.cpp'.`,
    );
  if (wish.command !== undefined) return wish.engine;
  if (wish.image !== undefined) return wish.engine ?? 'vllm';
  const found = ENGINE_NAMES.find((name) => (wish.engine === undefined || wish.engine === name) && programs.has(name));
  if (found !== undefined) return found;
  throw new UpError(
    `${host} has no ${wish.engine ?? ENGINE_NAMES.join(', ')} on its PATH, in its modules or in your environments.`,
    `Give the line that loads it, such as --setup 'module load vllm' or --setup 'source ~/venv/bin/activate', an image with --image FILE.sif, or the engine's command after --.${host === THIS_MACHINE ? ' For a cluster: --host me@login.example.org.' : ''}`,
  );
}

/** What an engine that ran out of memory was started with. */
export function triedSettings({ site, wish }: { site: LoginNode; wish: { engine: EngineWish } }, gpusPerNode: number) {
  const { engine } = wish;
  const name = engine.needsLlama ? 'llama' : engine.command === undefined ? chooseEngine(site, engine) : undefined;
  return { engine: name, arguments: engine.arguments, gpus: engine.gpus, gpusPerNode };
}

interface JobPlan {
  run: Run;
  site: LoginNode;
  pool: GpuPool;
  time: string;
  wish: EngineWish;
  /** Command of the agent on the host; `~/` is the home directory there. */
  agent: readonly string[];
  /** URL of a gateway that the job reaches; undefined: it uses the relay. */
  gateway: string | undefined;
  /** The job starts `minutes` after the start of another job. */
  after?: { job: string; minutes: number } | undefined;
}

/** @throws UpError if a value cannot be a part of a job's script */
export function planJob(plan: JobPlan): Submission {
  const { run, site, wish } = plan;
  const config = factoryConfig(plan);
  const { pool } = config;
  const body = bodyOf(plan, config, slurm(config.cluster).jobId);
  const log = `${site.home}/${runDirectory(run)}/%j.log`;
  return { name: runJobName(run), count: 1, pool, gpus: wish.gpus, body, log };
}

/** The script of a job on a machine without a batch system. @throws UpError */
export function processScript(plan: JobPlan): string {
  return bodyOf(plan, factoryConfig(plan), '$OTELA_UP_JOB');
}

/** @param jobId shell expression for the job's id */
function bodyOf(
  { run, agent, gateway = TUNNEL_URL }: JobPlan,
  config: ReturnType<typeof factoryConfig>,
  jobId: string,
): string {
  const { cluster, recipe, pool, engine } = config;
  const context = jobContext(run.model, { recipe, engine, cluster });
  const contextId = jobContextId(context);
  const beside = offerLines(run, agent);
  return scriptBody({ factory: 'up', gateway, cluster, gpu: pool.gpu, context, contextId, jobId, beside });
}

/** The run as a factory's configuration. The factory's schema checks all values. @throws UpError */
function factoryConfig(plan: JobPlan) {
  const { run, site, pool, wish } = plan;
  const at = `~/${runDirectory(run)}`;
  const read = fileSchema.safeParse({
    factory: 'up',
    gateway: plan.gateway ?? TUNNEL_URL,
    token_file: `${at}/token`,
    state: at,
    clusters: { up: clusterOf(plan, at) },
    recipes: { [run.model]: { weights: run.model, engines: [engineOf(site, wish, gpuName(pool))] } },
    models: { [run.model]: { recipe: run.model } },
  });
  if (!read.success) {
    const [issue] = read.error.issues;
    throw new UpError(
      `These settings cannot be a job: ${issue?.path.join('.')}: ${issue?.message}`,
      'Correct the flag or the model name.',
    );
  }
  const { clusters, recipes } = read.data;
  const [cluster, recipe] = [clusters.up, recipes[run.model]];
  const [[chosen], [engine]] = [cluster?.pools ?? [], recipe?.engines ?? []];
  if (cluster === undefined || recipe === undefined || chosen === undefined || engine === undefined)
    throw new Error('the schema lost an entry');
  return { cluster: { id: 'up', ...cluster }, recipe, pool: chosen, engine };
}

function clusterOf({ pool, time, wish, agent, gateway, after }: JobPlan, at: string) {
  return {
    launcher: 'slurm',
    agent: [...agent],
    join_token_file: `${at}/token`,
    setup: [tokenWait(at), ...wish.setup, ...(wish.command?.[0] === LLAMA_SERVER ? LLAMA_KEY : [])],
    environment: {
      // No other agent calls this one, so it does not listen.
      OTELA_MESH: 'off',
      ...(gateway === undefined ? relayed(at) : {}),
      ...(wish.isOffline ? { HF_HUB_OFFLINE: '1' } : {}),
    },
    pools: [
      {
        name: pool.partition,
        gpu: gpuName(pool),
        gpus_per_node: pool.gpusPerNode,
        time,
        ...(pool.gpu === undefined ? {} : { gres: pool.gpu }),
        ...(wish.account === undefined ? {} : { account: wish.account }),
        options: [
          ...drainSignal(time),
          ...(after === undefined ? [] : [`dependency=after:${after.job}+${after.minutes}`]),
          ...wish.sbatchOptions,
        ],
      },
    ],
  };
}

/** The job may start before the gateway, which creates the token. */
const tokenWait = (at: string) =>
  `for try in $(seq ${TOKEN_TRIES}); do [ "$(cat ${at}/token)" = ${WAITING} ] || break; sleep 0.1; done`;

/** The relay writes its address to a file: after a reconnection it may be on another login node. */
const relayed = (at: string) => ({ OTELA_RELAY: `${at}/relay`, NODE_EXTRA_CA_CERTS: `${at}/gateway.pem` });

/** A job of a few minutes must not drain two minutes before its end, as the recipe's jobs do. */
function drainSignal(time: string): string[] {
  const seconds = Math.floor((timeLimitMs(time) ?? 0) / 1_000 / DRAIN_SHARE);
  return seconds < DRAIN_S ? [`signal=B:USR1@${Math.max(DRAIN_MIN_S, seconds)}`] : [];
}

/** Some sites do not name their GPUs. */
const gpuName = ({ gpu = 'GPU' }: GpuPool): string => gpu;

function engineOf(site: LoginNode, wish: EngineWish, gpu: string) {
  const engine = chooseEngine(site, wish);
  return {
    gpu: [gpu],
    gpus: wish.gpus,
    ...(engine === undefined ? {} : { engine }),
    arguments: [...wish.arguments],
    ...(wish.command === undefined ? {} : { command: [...wish.command] }),
    ...(wish.image === undefined ? {} : { container: 'apptainer', image: wish.image }),
  };
}

/** The launcher of the factory, with commands that run on the host. */
export function launcherOn(run: RunCommand, pools: readonly GpuPool[] = []): Launcher {
  const jobPools = pools.map((pool) => ({
    name: pool.partition,
    gpu: gpuName(pool),
    gres: pool.gpu,
    time: '1',
    options: [],
  }));
  const cluster = { pools: jobPools };
  return batchLauncher(cluster, slurm(cluster), run);
}

/** Explains why Slurm refused the job. */
export function submitFailure(
  error: unknown,
  { accounts, host }: Pick<LoginNode, 'accounts' | 'host'>,
  account: string | undefined,
): UpError {
  const said = errorText(error);
  const cause = { cause: error };
  if (/invalid account|account\/partition combination/i.test(said))
    return new UpError(
      `Slurm on ${host} refuses the account ${account ?? 'that is your default'}: ${said}`,
      accounts.length > 0
        ? `Your accounts are ${accounts.join(', ')}: give one with --account.`
        : 'Give your account with --account; your site or sacctmgr knows its name.',
      cause,
    );
  if (/time limit/i.test(said))
    return new UpError(`Slurm on ${host} refuses the time limit: ${said}`, 'Give a shorter --time.', cause);
  if (/qos|limit|quota/i.test(said))
    return new UpError(
      `Slurm on ${host} refuses the job: ${said}`,
      'Your site limits jobs. Ask it, or give fewer --gpus, another --partition or --sbatch-option qos=NAME.',
      cause,
    );
  return new UpError(
    `Slurm on ${host} refuses the job: ${said}`,
    'Give what it asks for by --partition, --account, --time or --sbatch-option.',
    cause,
  );
}
