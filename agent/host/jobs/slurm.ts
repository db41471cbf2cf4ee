/** Slurm's information about the job of this agent. */
import type { RunTool } from '../run-tool.ts';
import type { BatchJob, EndTime, Env, JobFate } from './batch-job.ts';

/** Undefined outside a job. */
export function slurmJob(env: Env): BatchJob | undefined {
  const id = env.SLURM_JOB_ID || env.SLURM_JOBID;
  if (!id || !/^[0-9A-Za-z_.+-]{1,64}$/.test(id)) return undefined;
  const { SLURM_ARRAY_JOB_ID: array, SLURM_ARRAY_TASK_ID: task } = env;
  // Names only this job: one task of an array has the id of the whole array.
  const query = array && task && /^\d+$/.test(array) && /^\d+$/.test(task) ? `${array}_${task}` : id;
  return {
    system: 'Slurm',
    id,
    node: env.SLURMD_NODENAME?.slice(0, 255),
    partition: env.SLURM_JOB_PARTITION?.slice(0, 64),
    ends: environmentEndTime(env),
    askEnd: (run) => askEndTime(query, run),
    askFate: (run) => askFate(query, run),
    askRunsUntil: (run) => askRunsUntil(query, run),
    killWaitMs,
  };
}

/** Slurm prints local time, so the time zone is set to UTC. */
const UTC_TIMES = { TZ: 'UTC', SLURM_TIME_FORMAT: 'standard' };

/**
 * The job's current end from slurmctld: limits are changed by `scontrol update` while jobs run, and SLURM_JOB_END_TIME
 * keeps its value.
 */
async function askEndTime(query: string, run: RunTool): Promise<EndTime> {
  const answer = await run('squeue', ['-h', '-j', query, '-o', '%e'], UTC_TIMES);
  if (!answer.ok) return { kind: 'unknown', reason: answer.reason };
  // The parts of a heterogeneous job are several lines with the same end.
  const lines = new Set(answer.stdout.split('\n').flatMap((line) => line.trim() || []));
  const [line] = lines;
  if (line === undefined || lines.size > 1) {
    return { kind: 'unknown', reason: `squeue shows ${lines.size} end times for job ${query}` };
  }
  if (line === 'NONE' || line === 'N/A' || line === 'UNLIMITED') return { kind: 'known', ends: undefined };
  const ends = utcTime(line);
  if (ends === undefined) return { kind: 'unknown', reason: `squeue printed "${line.slice(0, 40)}"` };
  return { kind: 'known', ends };
}

/** Parses a time as Slurm prints it with `UTC_TIMES`. */
function utcTime(text: string): Date | undefined {
  const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/.test(text) ? new Date(`${text}Z`) : undefined;
  return time === undefined || Number.isNaN(time.getTime()) ? undefined : time;
}

/** SLURM_JOB_END_TIME, seconds since 1970: Slurm 23.02 and later. */
function environmentEndTime(env: Env): Date | undefined {
  const seconds = env.SLURM_JOB_END_TIME;
  if (seconds === undefined || !/^\d{9,11}$/.test(seconds)) return undefined;
  return new Date(Number(seconds) * 1000);
}

/**
 * scontrol(1), "show job". A job that is being ended is COMPLETING, regardless of the cause. Its reason and PreemptTime
 * distinguish the time limit and preemption from scancel. A job in its grace time before preemption still runs.
 */
async function askFate(query: string, run: RunTool): Promise<JobFate | undefined> {
  const answer = await run('scontrol', ['show', 'job', '--oneliner', query]);
  if (!answer.ok) return undefined;
  const field = (name: string) => fieldOf(answer.stdout, name);
  const state = field('JobState');
  const preempted = field('PreemptTime');
  if (state === 'PREEMPTED' || (preempted !== '' && preempted !== 'None')) return 'preempted';
  const reason = field('Reason');
  if (state === 'TIMEOUT' || state === 'DEADLINE' || reason === 'TimeLimit') return 'time-limit';
  if (state === 'OUT_OF_MEMORY' || reason === 'OutOfMemory') return 'out-of-memory';
  if (state === 'NODE_FAIL' || reason === 'NodeDown') return 'node-failure';
  return state === 'CANCELLED' || state === 'COMPLETING' ? 'cancelled' : undefined;
}

/** The value in a line of `name=value` words. */
function fieldOf(line: string, name: string): string {
  return new RegExp(`(?:^|\\s)${name}=(\\S+)`).exec(line)?.[1] ?? '';
}

/**
 * A job that is ending is COMPLETING before its processes get a signal. If the job is RUNNING, a SIGTERM is a warning
 * (`--signal=TERM@120`) or a preemption with a grace time, which moves EndTime.
 */
async function askRunsUntil(query: string, run: RunTool): Promise<Date | undefined> {
  const answer = await run('scontrol', ['show', 'job', '--oneliner', query], UTC_TIMES);
  if (!answer.ok || fieldOf(answer.stdout, 'JobState') !== 'RUNNING') return undefined;
  return utcTime(fieldOf(answer.stdout, 'EndTime'));
}

/** slurm.conf(5): the default if it is not set. */
const KILL_WAIT_DEFAULT_MS = 30_000;

/** Time between SIGTERM and SIGKILL at this site; Slurm's default if it cannot be found out. */
async function killWaitMs(run: RunTool): Promise<number> {
  const answer = await run('scontrol', ['show', 'config']);
  const seconds = answer.ok ? /^KillWait\s*=\s*(\d+)/m.exec(answer.stdout)?.[1] : undefined;
  return seconds === undefined ? KILL_WAIT_DEFAULT_MS : Number(seconds) * 1000;
}
