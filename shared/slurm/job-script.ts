/** An sbatch script that serves a model: what the dashboard's wizard shows and `otela-agent sbatch` prints. */
export const JOB_ENGINES = ['vllm', 'sglang'] as const;
export const JOB_CONTAINERS = ['none', 'apptainer', 'enroot'] as const;

export interface JobRequest {
  gateway: string;
  model: string;
  engine: (typeof JOB_ENGINES)[number];
  gpus: number;
  /** Empty: the cluster's default. */
  partition: string;
  /** As Slurm writes it: `D-HH:MM:SS`, `HH:MM:SS` or minutes. */
  time: string;
  container: (typeof JOB_CONTAINERS)[number];
  /** Of a container; empty: a file by the engine's name. */
  image: string;
}

/** POSIX shell, single quotes. */
export function shellQuoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Slurm reads these lines itself: one word each, without anything that could begin another line. */
function directive(text: string): string {
  return text.replace(/[^\w.:,@/-]/g, '');
}

/** Whatever the fields hold, the script does nothing but what it says: they are quoted, or reduced to what Slurm's lines may have. */
export function jobScript({ gateway, model, engine, gpus, partition, time, container, image }: JobRequest): string {
  const lines = [
    '#!/bin/bash',
    '#SBATCH --job-name=otela',
    '#SBATCH --nodes=1',
    `#SBATCH --gpus-per-node=${gpus}`,
    ...(directive(partition) === '' ? [] : [`#SBATCH --partition=${directive(partition)}`]),
    `#SBATCH --time=${directive(time) || '01:00:00'}`,
    // Two minutes before its end the agent takes no more requests and finishes what runs.
    '#SBATCH --signal=B:USR1@120',
    '',
    `export OTELA_GATEWAY=${shellQuoted(gateway)}`,
    'export OTELA_TOKEN_FILE=$HOME/.otela-token',
    'exec otela-agent start -- \\',
    `  ${[...wrapped(container, image || `${engine}.sif`), ...serve(engine, model, gpus)].join(' ')}`,
  ];
  return `${lines.join('\n')}\n`;
}

/** Jobs of others may run on the same node, on the engine's usual port. */
const LISTEN = ['--host', '127.0.0.1', '--port', '$((20000 + SLURM_JOB_ID % 10000))'];

function serve(engine: JobRequest['engine'], model: string, gpus: number): string[] {
  const name = shellQuoted(model);
  if (engine === 'vllm') return ['vllm', 'serve', name, '--tensor-parallel-size', String(gpus), ...LISTEN];
  const flags = ['--model-path', name, '--tp', String(gpus), '--enable-metrics', ...LISTEN];
  return ['python3', '-m', 'sglang.launch_server', ...flags];
}

function wrapped(container: JobRequest['container'], image: string): string[] {
  if (container === 'apptainer') return ['apptainer', 'exec', '--nv', shellQuoted(image)];
  if (container === 'enroot') return ['enroot', 'start', shellQuoted(image)];
  return [];
}
