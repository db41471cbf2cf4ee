/** The part of a job's script that all batch systems share, below their own directives. */
import { CONTEXT_LABEL, FACTORY_LABEL, JOB_LABEL } from '../../shared/factory/factory-exchange.ts';
import { findGpuClass } from '../../shared/hardware/gpu-classes.ts';
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
  /** A shell word for the job's id: `$SLURM_JOB_ID`. */
  jobId: string;
}

/**
 * Every user of a node can connect to its loopback: vLLM answers requests without this key with 401. SGLang accepts a
 * key only on its command line, where every user sees it.
 */
const ENGINE_KEY = [
  "VLLM_API_KEY=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \\n')",
  'export VLLM_API_KEY OTELA_ENGINE_KEY=$VLLM_API_KEY',
];

/** Returns lines without `#!`. The shell reads all values of the file as words, regardless of their content. */
export function scriptBody({ factory, gateway, cluster, gpu, context, contextId, jobId }: ScriptRequest): string {
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
    // From a command such as `bash -c …`, the agent cannot see where its engine listens.
    '--engine-port',
    '"$OTELA_PORT"',
    '--',
  ];
  return [
    ...cluster.setup,
    `export OTELA_GATEWAY=${quoted(gateway)}`,
    `export OTELA_TOKEN_FILE=${quotedPath(cluster.join_token_file)}`,
    ...Object.entries(context.environment).map(([name, value]) => `export ${name}=${quotedPath(value)}`),
    ...(context.engine === 'vllm' ? ENGINE_KEY : []),
    ...mounted(context),
    // Jobs of other users may run on the same node. Only digits, because some ids have other characters.
    `OTELA_JOB_DIGITS=$(printf %s "${jobId}" | tr -cd 0-9 | tail -c 9)`,
    'OTELA_PORT=$((20000 + 1$OTELA_JOB_DIGITS % 10000))',
    `exec ${start.join(' ')} \\`,
    `  ${[...wrapped(context, gpu), ...context.command.map(engineWord)].join(' ')}`,
    '',
  ].join('\n');
}

/** POSIX shell, single quotes. */
function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The job's shell expands its home directory, which quotes would prevent. */
function quotedPath(path: string): string {
  return path.startsWith('~/') ? `"$HOME"/${quoted(path.slice(2))}` : quoted(path);
}

function engineWord(word: string): string {
  return word
    .split('{{port}}')
    .map((part) => (part === '' ? '' : quotedPath(part)))
    .join('"$OTELA_PORT"');
}

/** Directories to which the agent may pull files. */
const PULLED = ['"$SLURM_TMPDIR"', '"$TMPDIR"', '/tmp', '/dev/shm'];

/** Sets the job's `$@` to the options of `wrapped` that mount those of these directories that exist. */
function mounted({ container, mounts = [], environment, weights, packed }: JobContext): string[] {
  if (container === 'none') return [];
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
  // Unlike Apptainer, enroot passes only the variables that it is given.
  if (container !== 'enroot') return [];
  const names = [...Object.keys(environment), ...(engine === 'vllm' ? ['VLLM_API_KEY'] : [])];
  return ['enroot', 'start', ...names.flatMap((name) => ['--env', name]), '"$@"', quotedPath(image)];
}
