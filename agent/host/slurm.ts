/** What Slurm says about the job this agent runs in. */
import type { RunTool } from './run-tool.ts';

export interface SlurmJob {
  /** `SLURM_JOB_ID`. */
  id: string;
  /** Names this job alone to squeue: one task of an array has the id of the whole array. */
  query: string;
  /** Slurm's name of this node. */
  node: string | undefined;
  partition: string | undefined;
}

type Env = Readonly<Record<string, string | undefined>>;

/** Undefined outside a job. */
export function slurmJob(env: Env): SlurmJob | undefined {
  const id = env.SLURM_JOB_ID || env.SLURM_JOBID;
  if (!id || !/^[0-9A-Za-z_.+-]{1,64}$/.test(id)) return undefined;
  const { SLURM_ARRAY_JOB_ID: array, SLURM_ARRAY_TASK_ID: task } = env;
  const query = array && task && /^\d+$/.test(array) && /^\d+$/.test(task) ? `${array}_${task}` : id;
  return { id, query, node: env.SLURMD_NODENAME?.slice(0, 255), partition: env.SLURM_JOB_PARTITION?.slice(0, 64) };
}

/** `ends: undefined` is a job without a limit; `unknown` is no news: what was known before still holds. */
type EndTime = { kind: 'known'; ends: Date | undefined } | { kind: 'unknown'; reason: string };

/**
 * The end of the job as slurmctld knows it now: limits are changed by `scontrol update` while jobs run, and
 * SLURM_JOB_END_TIME stays what it was. squeue prints local time, so it is told that local is UTC.
 */
export async function askEndTime(job: SlurmJob, run: RunTool): Promise<EndTime> {
  const answer = await run('squeue', ['-h', '-j', job.query, '-o', '%e'], { TZ: 'UTC', SLURM_TIME_FORMAT: 'standard' });
  if (!answer.ok) return { kind: 'unknown', reason: answer.reason };
  // The parts of a heterogeneous job are several lines that end at one time.
  const lines = new Set(answer.stdout.split('\n').flatMap((line) => line.trim() || []));
  const [line] = lines;
  if (line === undefined || lines.size > 1) {
    return { kind: 'unknown', reason: `squeue tells ${lines.size} end times for job ${job.query}` };
  }
  if (line === 'NONE' || line === 'N/A' || line === 'UNLIMITED') return { kind: 'known', ends: undefined };
  const ends = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/.test(line) ? new Date(`${line}Z`) : undefined;
  if (!ends || Number.isNaN(ends.getTime())) return { kind: 'unknown', reason: `squeue says "${line.slice(0, 40)}"` };
  return { kind: 'known', ends };
}

/** SLURM_JOB_END_TIME, seconds since 1970: Slurm 23.02 and later. */
export function environmentEndTime(env: Env): Date | undefined {
  const seconds = env.SLURM_JOB_END_TIME;
  if (seconds === undefined || !/^\d{9,11}$/.test(seconds)) return undefined;
  return new Date(Number(seconds) * 1000);
}

/** slurm.conf(5): the default where it is not set. */
const KILL_WAIT_DEFAULT_MS = 30_000;

/** Time between SIGTERM and SIGKILL at this site; Slurm's default when it cannot be learnt. */
export async function killWaitMs(run: RunTool): Promise<number> {
  const answer = await run('scontrol', ['show', 'config']);
  const seconds = answer.ok ? /^KillWait\s*=\s*(\d+)/m.exec(answer.stdout)?.[1] : undefined;
  return seconds === undefined ? KILL_WAIT_DEFAULT_MS : Number(seconds) * 1000;
}
