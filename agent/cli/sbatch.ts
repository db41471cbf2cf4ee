/** `otela-agent sbatch`: a job script for this user's gateway, printed or handed to Slurm. */
import { spawn } from 'node:child_process';
import { JOB_CONTAINERS, JOB_ENGINES, type JobRequest, jobScript } from '../../shared/slurm/job-script.ts';
import type { Taken } from '../../shared/terminal/completion.ts';
import { JSON_FLAG } from './choose.ts';
import { EXIT_DONE, EXIT_ENGINE, UsageError } from './exit.ts';
import { type FlagSpec, parseFlags } from './flags.ts';
import type { Io } from './io.ts';
import { type Env, readSettings } from './sources.ts';

const VALUES = ['gateway', 'config', 'model', 'engine', 'gpus', 'partition', 'time', 'container', 'image'] as const;
const OFFERED: Partial<Record<(typeof VALUES)[number], Taken>> = {
  config: 'file',
  engine: JOB_ENGINES,
  container: JOB_CONTAINERS,
  image: 'file',
};
export const FLAGS: readonly FlagSpec[] = [
  ...VALUES.map((flag) => ({ flag, kind: 'value' as const, takes: OFFERED[flag] ?? 'word' })),
  { flag: 'submit', kind: 'switch', help: 'runs sbatch with it' },
  JSON_FLAG,
];
/** What sbatch says is a line. */
const SAID_MAX_BYTES = 64 * 1024;

export async function sbatchCommand(argv: readonly string[], env: Env, io: Io): Promise<number> {
  const { flags, command } = parseFlags(argv, FLAGS);
  if (command !== undefined) throw new UsageError('sbatch writes the command itself: say --model and --engine');
  const script = jobScript(requested(flags, env));
  if (!flags.has('submit')) {
    io.out(flags.has('json') ? JSON.stringify({ script }) : script.trimEnd());
    return EXIT_DONE;
  }
  const { code, said } = await submit(script, env);
  if (code !== 0) {
    io.stderr.write(`otela-agent: sbatch: ${said.trim()}\n`);
    return EXIT_ENGINE;
  }
  const job = /\d+/.exec(said)?.[0] ?? '';
  io.out(flags.has('json') ? JSON.stringify({ job, script }) : said.trim());
  return EXIT_DONE;
}

/** @throws UsageError */
function requested(flags: ReadonlyMap<string, string[]>, env: Env): JobRequest {
  const one = (name: (typeof VALUES)[number]) => flags.get(name)?.at(-1)?.trim();
  const only = new Map([...flags].filter(([name]) => name === 'gateway' || name === 'config'));
  const gateway = readSettings(only, env).values.get('gateway')?.values.join(',');
  if (gateway === undefined) throw new UsageError('which gateway? say --gateway URL or set OTELA_GATEWAY');
  const model = one('model');
  if (!model) throw new UsageError('which model? say --model NAME');
  const gpus = one('gpus') ?? '1';
  if (!/^[1-9]\d{0,2}$/.test(gpus)) throw new UsageError(`--gpus: "${gpus}" is no number of GPUs on one node`);
  const time = one('time') ?? '04:00:00';
  if (!/^(\d+-)?\d+(:\d{1,2}){0,2}$/.test(time))
    throw new UsageError(`--time: "${time}" is no time limit such as 04:00:00 or 1-12:00:00`);
  return {
    gateway,
    model,
    engine: among('engine', one('engine'), JOB_ENGINES),
    gpus: Number(gpus),
    partition: one('partition') ?? '',
    time,
    container: among('container', one('container'), JOB_CONTAINERS),
    image: one('image') ?? '',
  };
}

function among<T extends string>(flag: string, text: string | undefined, names: readonly [T, ...T[]]): T {
  const [first] = names;
  const found = text === undefined ? first : names.find((name) => name === text);
  if (found === undefined) throw new UsageError(`--${flag}: "${text}" is none of ${names.join(', ')}`);
  return found;
}

function submit(script: string, env: Env): Promise<{ code: number; said: string }> {
  return new Promise((resolve) => {
    const child = spawn('sbatch', [], { env: { ...env }, stdio: ['pipe', 'pipe', 'pipe'] });
    let said = '';
    const hear = (piece: Buffer) => {
      said = (said + piece.toString('utf8')).slice(-SAID_MAX_BYTES);
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.stdin.on('error', () => {}); // it ended before it read: its exit code says so
    child.on('error', (error) => resolve({ code: 1, said: error.message }));
    child.on('close', (code) => resolve({ code: code ?? 1, said }));
    child.stdin.end(script);
  });
}
