import { spawn } from 'node:child_process';
import { AdaptiveTimeout } from '../../shared/patience/adaptive-timeout.ts';
import { SchedulerError } from '../errors.ts';

export type JobState = 'waiting' | 'running' | 'gone';

/** Starts and ends replicas. */
export interface Launcher {
  /** The new job's id. */
  start(script: string, name: string): Promise<string>;
  /** Of exactly these jobs. Throws when that could not be learned: unknown is not gone. */
  states(ids: readonly string[]): Promise<Map<string, JobState>>;
  /** Asks them to drain and end: SIGTERM, which an agent answers by finishing what it has. */
  stop(ids: readonly string[]): Promise<void>;
}

/** A login node's Slurm that answers slower than this is not there, unless it answered slowly before. */
const answers = new AdaptiveTimeout({ leastMs: 30_000, mostMs: 120_000 });
const ANSWER_MAX_BYTES = 4 * 1024 * 1024;
/** squeue's words for a job that will or does run; all others have ended. */
const WAITING = new Set([
  'PENDING',
  'CONFIGURING',
  'REQUEUED',
  'REQUEUE_HOLD',
  'REQUEUE_FED',
  'RESV_DEL_HOLD',
  'SUSPENDED',
  'SPECIAL_EXIT',
  'STOPPED',
]);
const RUNNING = new Set(['RUNNING', 'COMPLETING', 'SIGNALING', 'STAGE_OUT', 'RESIZING']);

/** Slurm by its commands, as the user who runs this. */
export function slurmLauncher(run: typeof command = command): Launcher {
  return {
    async start(script, name) {
      const out = await run('sbatch', ['--parsable', `--job-name=${name}`], script);
      const id = /^(\d+)(;|$)/m.exec(out.trim())?.[1];
      if (id === undefined)
        throw new SchedulerError('launcher', `sbatch answered ${JSON.stringify(out.slice(0, 200))}, no job id`);
      return id;
    },
    async states(ids) {
      const states = new Map<string, JobState>(ids.map((id) => [id, 'gone']));
      if (ids.length === 0) return states;
      // Asked by user, not by id: squeue fails on ids that it has forgotten.
      const out = await run('squeue', ['--noheader', '--me', '--format=%i %T']);
      for (const line of out.split('\n')) {
        const [id = '', word = ''] = line.trim().split(/\s+/);
        if (!states.has(id)) continue;
        if (RUNNING.has(word)) states.set(id, 'running');
        else if (WAITING.has(word)) states.set(id, 'waiting');
      }
      return states;
    },
    async stop(ids) {
      if (ids.length > 0) await run('scancel', [...ids]);
    },
  };
}

/** Output of a command; throws with its last words if it fails. */
export function command(file: string, args: readonly string[], input = ''): Promise<string> {
  return answers.bound(
    () => performance.now(),
    (ms) => run(file, args, input, ms),
  );
}

function run(file: string, args: readonly string[], input: string, timeout: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, { stdio: ['pipe', 'pipe', 'pipe'], timeout });
    let [out, errors, bytes] = ['', '', 0];
    const read = (sink: 'out' | 'errors') => (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > ANSWER_MAX_BYTES) return void child.kill('SIGKILL');
      if (sink === 'out') out += chunk.toString();
      else errors += chunk.toString();
    };
    child.stdout.on('data', read('out'));
    child.stderr.on('data', read('errors'));
    // It may end without reading the script.
    child.stdin.on('error', () => {});
    child.stdin.end(input);
    child.on('error', (cause) => reject(new SchedulerError('launcher', `${file}: ${cause.message}`, { cause })));
    child.on('close', (code, signal) => {
      if (code === 0 && bytes <= ANSWER_MAX_BYTES) resolve(out);
      else reject(new SchedulerError('launcher', `${file} failed (${code ?? signal}): ${errors.trim().slice(-400)}`));
    });
  });
}
