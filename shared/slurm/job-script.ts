/** The sbatch script that serves a model. The dashboard's wizard shows it, and `otela-agent sbatch` prints it. */
export const JOB_ENGINES = ['vllm', 'sglang'] as const;
/** `edf`: the container engine of CSCS, a plugin of srun. An environment definition file describes the container. */
export const JOB_CONTAINERS = ['none', 'apptainer', 'enroot', 'edf'] as const;

export interface JobRequest {
  gateway: string;
  model: string;
  engine: (typeof JOB_ENGINES)[number];
  gpus: number;
  /** Slurm's name of the GPU type; absent: any type. */
  gpuType?: string;
  /** Empty: the cluster's default partition. */
  partition: string;
  /** Time limit in Slurm's notation: `D-HH:MM:SS`, `HH:MM:SS` or minutes. */
  time: string;
  container: (typeof JOB_CONTAINERS)[number];
  /** Image of the container, or name or path of its environment definition file; empty: `defaultImage`. */
  image: string;
  /** Path of the join token on the job's node; `~/` is the home directory there. Absent: `~/.otela-token`. */
  tokenFile?: string;
  /**
   * The Slurm account that is charged; absent or empty: the user's default. The four options below have the same rule.
   */
  account?: string;
  qos?: string;
  /** Required features of the node, in Slurm's notation: `a100|h100`, `[rack1|rack2]`. */
  constraint?: string;
  /** Memory per node, in Slurm's notation: `64G`. */
  memory?: string;
  cpusPerTask?: number;
  /** Further options of sbatch without the leading dashes: `reservation=maint`, `exclusive`. */
  sbatchOptions?: readonly string[];
  /** Modules that the job loads. */
  modules?: readonly string[];
  /** Directory for weights; `$NAME` in it is expanded. */
  scratch?: string;
  /** URL of the compute nodes' HTTP proxy. */
  proxy?: string;
  /** Further command-line arguments of the engine. */
  engineArguments?: readonly string[];
}

/** Maximum number of options. sbatch does not have as many. */
export const SBATCH_OPTIONS_MAX = 32;
export const ENGINE_ARGUMENTS_MAX = 128;

/** Default file name of the image: the engine's name with the suffix of the container runtime, if it has one. */
export function defaultImage({ engine, container }: Pick<JobRequest, 'engine' | 'container'>): string {
  if (container === 'edf') return engine; // The plugin finds ~/.edf/vllm.toml by this name.
  return `${engine}.${container === 'enroot' ? 'sqsh' : 'sif'}`;
}

/** Quotes `text` for a POSIX shell with single quotes. */
function shellQuoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/**
 * Reduces `text` to one word that Slurm accepts in a directive. Slurm parses these lines itself, so the word must not
 * be able to start another line.
 */
export function directiveWord(text: string): string {
  return text.replace(/[^\w.:,@/-]/g, '');
}

/**
 * Like `directiveWord`, but keeps Slurm's operators (sbatch(1), --constraint). The result is still one word, without
 * quotes and comments.
 */
export function directiveExpression(text: string): string {
  return text.replace(/[^\w.:,@/=+%&|*()[\]!<>-]/g, '');
}

/** `#SBATCH --NAME=VALUE`, or no line if `value` is empty. */
function option(name: string, value: string | number | undefined): string[] {
  return value === undefined || value === '' ? [] : [`#SBATCH --${name}=${value}`];
}

/** The `#SBATCH` lines that request resources. */
function placement(job: JobRequest): string[] {
  return [
    `#SBATCH --gpus-per-node=${job.gpuType === undefined ? '' : `${directiveWord(job.gpuType)}:`}${job.gpus}`,
    ...option('partition', directiveWord(job.partition)),
    ...option('account', directiveWord(job.account ?? '')),
    ...option('qos', directiveWord(job.qos ?? '')),
    ...option('constraint', directiveExpression(job.constraint ?? '')),
    ...option('mem', directiveWord(job.memory ?? '')),
    ...option('cpus-per-task', job.cpusPerTask),
    `#SBATCH --time=${directiveWord(job.time) || '01:00:00'}`,
    ...(job.sbatchOptions ?? []).slice(0, SBATCH_OPTIONS_MAX).flatMap((text) => {
      const word = directiveExpression(text).replace(/^-+/, '');
      return word === '' ? [] : [`#SBATCH --${word}`];
    }),
  ];
}

/** Quotes a path except for a leading `~/`, which becomes `$HOME/` so that the job's shell expands it. */
function pathQuoted(path: string): string {
  return path.startsWith('~/') ? `$HOME/${shellQuoted(path.slice(2))}` : shellQuoted(path);
}

/**
 * A secret for the engine's port, because every user of the node can reach the port. vLLM reads it from the
 * environment. SGLang accepts it only on its command line, which every user can read, so SGLang gets none.
 */
const ENGINE_KEY = {
  vllm: [
    '# Other users of the node reach the engine too; without this key it answers them with 401.',
    "VLLM_API_KEY=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \\n')",
    'export VLLM_API_KEY OTELA_ENGINE_KEY=$VLLM_API_KEY',
  ],
  sglang: [],
} as const satisfies Record<JobRequest['engine'], readonly string[]>;

/**
 * Containers do not see the scratch directory, and with enroot they do not see the home directory. Without a mount each
 * job would read the weights from the hub again.
 */
const HUB_CACHE = [`export HF_HOME="\${HF_HOME:-$HOME/.cache/huggingface}"`, 'mkdir -p "$HF_HOME"'];

/**
 * Writes the job script. Field values are quoted, or reduced to the characters that Slurm's lines allow, so no value
 * can add another command to the script.
 */
export function jobScript(job: JobRequest): string {
  const { gateway, engine, container, tokenFile = '~/.otela-token' } = job;
  const lines = [
    '#!/bin/bash',
    '#SBATCH --job-name=otela',
    '#SBATCH --nodes=1',
    ...placement(job),
    // Two minutes before the time limit Slurm sends USR1: the agent then accepts no more requests and finishes the
    // running ones.
    '#SBATCH --signal=B:USR1@120',
    '',
    `export OTELA_GATEWAY=${shellQuoted(gateway)}`,
    `export OTELA_TOKEN_FILE=${pathQuoted(tokenFile)}`,
    ...prepared(job),
    ...ENGINE_KEY[engine],
    ...(container === 'none' || job.scratch !== undefined ? [] : HUB_CACHE),
    'exec otela-agent start -- \\',
    `  ${[...wrapped(container, engine, job.image || defaultImage(job)), ...serve(job)].join(' ')}`,
  ];
  return `${lines.join('\n')}\n`;
}

/** The lines that a cluster needs before the engine starts. Each value is reduced to characters without a meaning. */
function prepared({ modules = [], scratch = '', proxy }: JobRequest): string[] {
  const names = modules.map((name) => name.replace(/[^\w@+./-]/g, '').replace(/^-+/, '')).filter((name) => name !== '');
  const place = scratch.replace(/[^\w./$-]/g, '');
  return [
    ...(proxy === undefined
      ? []
      : [`export HTTPS_PROXY=${shellQuoted(proxy)} HTTP_PROXY=${shellQuoted(proxy)} NO_PROXY=localhost,127.0.0.1`]),
    // A job's shell is not a login shell, so the command may not be defined yet.
    ...(names.length === 0 ? [] : ['type module > /dev/null 2>&1 || . /etc/profile', `module load ${names.join(' ')}`]),
    ...(place === '' ? [] : [`export HF_HOME="${place}/huggingface"`, 'mkdir -p "$HF_HOME"']),
  ];
}

/**
 * The engine listens on a port that depends on the job id, because other jobs on the same node may use the usual port.
 */
const LISTEN = ['--host', '127.0.0.1', '--port', '$((20000 + SLURM_JOB_ID % 10000))'];

function serve({ engine, model, gpus, engineArguments = [] }: JobRequest): string[] {
  const name = shellQuoted(model);
  const more = engineArguments.slice(0, ENGINE_ARGUMENTS_MAX).map(shellQuoted);
  if (engine === 'vllm') return ['vllm', 'serve', name, '--tensor-parallel-size', String(gpus), ...LISTEN, ...more];
  const flags = ['--model-path', name, '--tp', String(gpus), '--enable-metrics', ...LISTEN];
  return ['python3', '-m', 'sglang.launch_server', ...flags, ...more];
}

/**
 * The plugin starts containers of job steps. A step does not inherit the job's --cpus-per-task (Slurm 22.05 and later),
 * so without the flag the engine would be bound to one core.
 */
export const EDF_STEP = [
  'srun',
  '--ntasks=1',
  '--unbuffered',
  `--cpus-per-task="\${SLURM_CPUS_PER_TASK:-$SLURM_CPUS_ON_NODE}"`,
] as const;

function wrapped(container: JobRequest['container'], engine: JobRequest['engine'], image: string): string[] {
  if (container === 'apptainer') return ['apptainer', 'exec', '--nv', '--bind', '"$HF_HOME"', shellQuoted(image)];
  // Unlike Apptainer, enroot passes only variables on that are named here: the engine's key, and the variable that the
  // agent sets for SGLang.
  const variable = engine === 'vllm' ? 'VLLM_API_KEY' : 'SGLANG_REQUEST_STATE_WAIT_TIMEOUT';
  const hub = ['--env', 'HF_HOME', '--mount', '"$HF_HOME:$HF_HOME"'];
  if (container === 'edf') return [...EDF_STEP, `--environment=${shellQuoted(image)}`];
  if (container === 'enroot') return ['enroot', 'start', '--env', variable, ...hub, shellQuoted(image)];
  return [];
}
