/** What the wizard writes. Everything that was typed is quoted: the script must do nothing but what it says. */
export interface JobRequest {
  gateway: string;
  model: string;
  engine: 'vllm' | 'sglang' | string;
  gpus: number;
  partition: string;
  time: string;
  container: 'none' | 'apptainer' | 'enroot' | string;
  /** Of a container; empty: one by the engine's name. */
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

export function jobScript({ gateway, model, engine, gpus, partition, time, container, image }: JobRequest): string {
  const lines = [
    '#!/bin/bash',
    '#SBATCH --job-name=otela',
    '#SBATCH --nodes=1',
    `#SBATCH --gpus-per-node=${gpus}`,
    ...(directive(partition) === '' ? [] : [`#SBATCH --partition=${directive(partition)}`]),
    `#SBATCH --time=${directive(time) || '01:00:00'}`,
    '#SBATCH --signal=B:USR1@120',
    '',
    `export OTELA_GATEWAY=${shellQuoted(gateway)}`,
    `exec otela-agent start --token-file "$HOME/.config/otela/token" -- \\`,
    `  ${[...wrapped(container, image || `${engine}.sif`), ...serve(engine, model, gpus)].join(' ')}`,
  ];
  return `${lines.join('\n')}\n`;
}

function serve(engine: string, model: string, gpus: number): string[] {
  if (engine === 'sglang')
    return [
      'python3',
      '-m',
      'sglang.launch_server',
      '--model-path',
      shellQuoted(model),
      '--tp',
      String(gpus),
      '--enable-metrics',
    ];
  return ['vllm', 'serve', shellQuoted(model), '--tensor-parallel-size', String(gpus)];
}

function wrapped(container: string, image: string): string[] {
  if (container === 'apptainer') return ['apptainer', 'exec', '--nv', shellQuoted(image)];
  if (container === 'enroot') return ['enroot', 'start', shellQuoted(image)];
  return [];
}
