/** The part of a job's script that is the same for all batch systems, below their directives. */
import { CONTEXT_LABEL, FACTORY_LABEL, FUNCTIONS_LABEL, JOB_LABEL } from '../../shared/factory/factory-exchange.ts';
import { findGpuClass } from '../../shared/hardware/gpu-classes.ts';
import { EDF_STEP } from '../../shared/slurm/job-script.ts';
import { parseSource } from '../../shared/weights/weights-source.ts';
import type { ClusterConfig } from '../config/schema.ts';
import type { JobContext } from './job-context.ts';

interface ScriptRequest {
  factory: string;
  gateway: string;
  cluster: ClusterConfig;
  /** Kind of the pool's GPUs. */
  gpu: string;
  context: JobContext;
  contextId: string;
  /** A shell expression for the job's id, such as `$SLURM_JOB_ID`. */
  jobId: string;
  /** Lines that start processes beside the agent. */
  beside?: readonly string[];
}

/**
 * Shell lines that create the engine's API key. Every user of a machine can connect to its loopback address, and with
 * the key vLLM answers other users with 401. SGLang is not protected: it accepts a key only on its command line, which
 * every user can read.
 */
const ENGINE_KEY = [
  "VLLM_API_KEY=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \\n')",
  'export VLLM_API_KEY OTELA_ENGINE_KEY=$VLLM_API_KEY',
];

/**
 * Returns the script's lines without `#!`. All values of the file are quoted, so the shell reads them as words whatever
 * they contain.
 */
export function scriptBody(request: ScriptRequest): string {
  const { factory, gateway, cluster, gpu, context, contextId, jobId, beside = [] } = request;
  const labels = [`${FACTORY_LABEL}=${factory}`, `${CONTEXT_LABEL}=${contextId}`].flatMap((label) => [
    '--label',
    label,
  ]);
  const start = [
    ...cluster.agent.map(quotedPath),
    'start',
    ...labels,
    '--label',
    `"${JOB_LABEL}=${cluster.id}/${jobId}"`,
    ...(cluster.cluster === undefined ? [] : ['--cluster', cluster.cluster]),
    ...(parseSource(context.weights) === undefined ? [] : ['--weights', quoted(context.weights)]),
    ...(context.packed === undefined ? [] : ['--environment', quoted(context.packed)]),
    ...(context.functions === undefined ? ENGINE_ARGUMENTS : functionArguments(context.functions)),
  ];
  const engine = [...wrapped(context, gpu), ...context.command.map(quoteEngineWord)].join(' ');
  return [
    ...cluster.setup,
    `export OTELA_GATEWAY=${quoted(gateway)}`,
    `export OTELA_TOKEN_FILE=${quotedPath(cluster.join_token_file)}`,
    ...Object.entries(context.environment).map(([name, value]) => `export ${name}=${quotedPath(value)}`),
    ...(context.engine === 'vllm' ? ENGINE_KEY : []),
    ...mounted(context),
    // Derive the port from the job's id, because jobs of other users may run on the same node. Use only the id's
    // digits, because some ids have other characters.
    `OTELA_JOB_DIGITS=$(printf %s "${jobId}" | tr -cd 0-9 | tail -c 9)`,
    'OTELA_PORT=$((20000 + 1$OTELA_JOB_DIGITS % 10000))',
    ...beside,
    ...(context.functions === undefined ? [`exec ${start.join(' ')} \\`, `  ${engine}`] : [`exec ${start.join(' ')}`]),
    '',
  ].join('\n');
}

/** The agent cannot find the engine's port in a command such as `bash -c …`. */
const ENGINE_ARGUMENTS = ['--engine-port', '"$OTELA_PORT"', '--'];

function functionArguments({ owners, flags }: NonNullable<JobContext['functions']>): string[] {
  const allowed = owners.flatMap((owner) => ['--allow-functions', quoted(owner)]);
  return ['--label', `${FUNCTIONS_LABEL}=on`, ...allowed, ...flags.map(quotedPath)];
}

/** Quotes a text with single quotes of the POSIX shell. */
function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Quotes a path, except for a leading `~/`, which the job's shell must expand. */
function quotedPath(path: string): string {
  return path.startsWith('~/') ? `"$HOME"/${quoted(path.slice(2))}` : quoted(path);
}

function quoteEngineWord(word: string): string {
  return word
    .split('{{port}}')
    .map((part) => (part === '' ? '' : quotedPath(part)))
    .join('"$OTELA_PORT"');
}

/** Directories to which the agent may pull files, as the job's shell expands them. */
const PULLED = ['"$SLURM_TMPDIR"', '"$TMPDIR"', '/tmp', '/dev/shm'];

/**
 * Returns shell lines that set `$@` to the options that mount the existing directories of the list in the container.
 */
function mounted({ container, mounts = [], environment, weights, packed }: JobContext): string[] {
  if (container === 'none') return [];
  // The environment definition file lists its mounts.
  if (container === 'edf') return 'HF_HOME' in environment ? ['mkdir -p "$HF_HOME"'] : [];
  const isPulled = parseSource(weights) !== undefined || packed !== undefined;
  const places = [
    ...mounts.map(quotedPath),
    ...('HF_HOME' in environment ? ['"$HF_HOME"'] : []),
    ...(weights.startsWith('/') ? [quoted(weights)] : []),
    ...(isPulled ? PULLED : []),
  ];
  const option = container === 'apptainer' ? '--bind "$OTELA_PLACE"' : '--mount "$OTELA_PLACE:$OTELA_PLACE"';
  return [
    ...('HF_HOME' in environment ? ['mkdir -p "$HF_HOME"'] : []),
    'set --',
    ...(places.length === 0
      ? []
      : [`for OTELA_PLACE in ${places.join(' ')}; do [ ! -e "$OTELA_PLACE" ] || set -- "$@" ${option}; done`]),
  ];
}

function wrapped({ container, image = '', environment, engine }: JobContext, gpu: string): string[] {
  if (container === 'apptainer') {
    const drivers = { nvidia: ['--nv'], amd: ['--rocm'], intel: [] }[findGpuClass(gpu)?.vendor ?? 'nvidia'];
    return ['apptainer', 'exec', ...drivers, '"$@"', quotedPath(image)];
  }
  if (container === 'edf') return [...EDF_STEP, `--environment=${quotedPath(image)}`];
  // Unlike Apptainer, enroot passes only the listed variables to the container.
  if (container !== 'enroot') return [];
  const names = [...Object.keys(environment), ...(engine === 'vllm' ? ['VLLM_API_KEY'] : [])];
  return ['enroot', 'start', ...names.flatMap((name) => ['--env', name]), '"$@"', quotedPath(image)];
}
