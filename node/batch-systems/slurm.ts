/** Slurm 20.11 and later, by its commands: sbatch(1), squeue(1), sinfo(1), scancel(1), scontrol(1). */
import { gpuClass } from '../../shared/hardware/gpu-classes.ts';
import { freeGpus, isGpuSlice } from '../../shared/slurm/gpu-gres.ts';
import { takesJobs } from '../../shared/slurm/node-state.ts';
import type { AskTool, BatchJob, EndTime, Env, JobFate } from './batch-job.ts';
import type { BatchSystem, Capacity, JobCluster, JobPool, JobSubmission, ListedJob } from './batch-system.ts';

/** Seconds before the job's end at which Slurm sends the agent the signal to drain. */
const BEFORE_END_S = 120;
/**
 * Format of squeue's output: one job per line. Only the reason may contain a vertical bar, and it is the last field.
 */
const SQUEUE_FORMAT = '%i|%j|%T|%N|%r';
const SINFO_FORMAT = 'NodeHost:128,|:1,Partition:128,|:1,StateCompact:40,|:1,Gres:400,|:1,GresUsed:400';
/**
 * Matches Slurm's output if its controller is unavailable, so that the job may exist. Any other error means that the
 * request was refused.
 */
const CONTROLLER_UNAVAILABLE =
  /unable to contact slurm controller|socket timed out|connection refused|communication|zero bytes were transmitted|slurm backup controller|unable to establish|DNS SRV lookup failed/i;

/** A job's id as squeue and scancel write it: a task of an array is 123_4. */
// biome-ignore lint/suspicious/noTemplateCurlyInString: the shell's braces
const JOB_ID = '${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}';

export function slurm({ clusters }: JobCluster): BatchSystem {
  const where = clusters === undefined ? [] : [`--clusters=${clusters}`];
  return {
    kind: 'slurm',
    seen: 'real',
    jobId: JOB_ID,
    away: CONTROLLER_UNAVAILABLE,
    prefix: /^\w+: (error: )?/gm,
    submit: (submission) => ({ file: 'sbatch', args: [...where, '--parsable'], input: script(submission) }),
    // Takes the last line with an id: some sites print a message before the id, and a line of the message may begin
    // with a number.
    idIn: (out) => [...out.matchAll(/^(\d+)(?:;\S+)?[ \t\r]*$/gm)].at(-1)?.[1],
    taskId: (id, index) => `${id}_${index}`,
    list: {
      file: 'squeue',
      args: [...where, '--noheader', '--me', '--array', '--states=all', `--format=${SQUEUE_FORMAT}`],
    },
    parse: parseJobs,
    capacity: { file: 'sinfo', args: [...where, '--noheader', '-N', '-O', SINFO_FORMAT], parse: parseNodes },
    cancel: { file: 'scancel', args: (ids) => [...where, '--quiet', ...ids] },
    check: (submission) => ({ file: 'sbatch', args: [...where, '--test-only'], input: script(submission) }),
  };
}

/** Returns the whole script for sbatch. */
function script({ name, count, pool, gpus, body, log, exclude = [] }: JobSubmission): string {
  const option = (key: string, value: string | number | undefined) =>
    value === undefined ? [] : [`#SBATCH --${key}=${value}`];
  return [
    '#!/bin/bash',
    `#SBATCH --job-name=${name}`,
    '#SBATCH --nodes=1',
    `#SBATCH --partition=${pool.name}`,
    `#SBATCH --gpus-per-node=${pool.gres === undefined ? '' : `${pool.gres}:`}${gpus}`,
    `#SBATCH --time=${pool.time}`,
    ...option('account', pool.account),
    ...option('qos', pool.qos),
    ...option('constraint', pool.constraint),
    ...option('mem', pool.memory),
    ...option('cpus-per-task', pool.cpus),
    ...(exclude.length === 0 ? [] : [`#SBATCH --exclude=${exclude.join(',')}`]),
    // Slurm must not requeue a job, because it would then run again without the factory's knowledge.
    '#SBATCH --no-requeue',
    `#SBATCH --signal=B:USR1@${BEFORE_END_S}`,
    `#SBATCH --output=${count > 1 ? log.replace('%j', '%A_%a') : log}`,
    '#SBATCH --open-mode=append',
    ...(count > 1 ? [`#SBATCH --array=0-${count - 1}`] : []),
    ...pool.options.map((one) => `#SBATCH --${one.replace(/^-+/, '')}`),
    '',
    body,
  ].join('\n');
}

/**
 * States of jobs that wait. In all states that are neither here nor in `RUNNING`, the job has ended: squeue(1), JOB
 * STATE CODES.
 */
const PENDING = new Set([
  'PENDING',
  'CONFIGURING',
  'REQUEUED',
  'REQUEUE_HOLD',
  'REQUEUE_FED',
  'RESV_DEL_HOLD',
  'SPECIAL_EXIT',
]);
const RUNNING = new Set(['RUNNING', 'COMPLETING', 'SIGNALING', 'STAGE_OUT', 'RESIZING', 'SUSPENDED', 'STOPPED']);
const ENDED: Readonly<Record<string, ListedJob['ended']>> = {
  COMPLETED: 'done',
  FAILED: 'failed',
  OUT_OF_MEMORY: 'failed',
  LAUNCH_FAILED: 'failed',
  PREEMPTED: 'preempted',
  REVOKED: 'preempted',
  NODE_FAIL: 'node',
  BOOT_FAIL: 'node',
  TIMEOUT: 'time',
  DEADLINE: 'time',
  CANCELLED: 'cancelled',
};

function parseJobs(out: string): ListedJob[] {
  return out.split('\n').flatMap((line): ListedJob[] => {
    const [id = '', name = '', word = '', node = '', ...rest] = line.trim().split('|');
    // With --clusters, squeue prints a line with the cluster's name, which is skipped.
    if (!/^\d+(_\d+)?$/.test(id)) return [];
    const reason = rest.join('|');
    if (PENDING.has(word)) return [{ id, name, state: 'pending', reason }];
    const host = node === '' ? {} : { host: node };
    if (RUNNING.has(word)) return [{ id, name, state: 'running', ...host }];
    const ended = ENDED[word.split(' ')[0] ?? ''];
    return [{ id, name, state: 'ended', reason: word, ...host, ...(ended === undefined ? {} : { ended }) }];
  });
}

function parseNodes(out: string, { pools }: JobCluster): Capacity[] {
  const idle = new Map(pools.map(({ name }) => [name, 0]));
  for (const line of out.split('\n')) {
    const [, partition = '', state = '', gres = '', used = ''] = line.split('|').map((cell) => cell.trim());
    const name = partition.replace(/\*$/, '');
    const pool = pools.find((one) => one.name === name);
    if (pool === undefined || !takesJobs(state)) continue;
    for (const [type, free] of freeGpus(gres, used))
      if (isOfPool(type, pool)) idle.set(name, (idle.get(name) ?? 0) + free);
  }
  return [...idle].map(([pool, count]) => ({ pool, idle: count }));
}

/** True if the GPU belongs to the pool. A slice of a GPU belongs to it only if the pool names the slice. */
function isOfPool(type: string | undefined, pool: JobPool): boolean {
  if (type === undefined) return true;
  return pool.gres === undefined ? !isGpuSlice(type) && gpuClass(type) === gpuClass(pool.gpu) : type === pool.gres;
}

/** Returns the job of this process; undefined outside a job. */
export function slurmJob(env: Env): BatchJob | undefined {
  const id = env.SLURM_JOB_ID || env.SLURM_JOBID;
  if (!id || !/^[0-9A-Za-z_.+-]{1,64}$/.test(id)) return undefined;
  const { SLURM_ARRAY_JOB_ID: array, SLURM_ARRAY_TASK_ID: task } = env;
  // The id of only this job: for one task of an array, SLURM_JOB_ID is also the id of the whole array.
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

/** Environment with which Slurm prints times in UTC and in the standard format; otherwise it prints local time. */
const UTC_TIMES = { TZ: 'UTC', SLURM_TIME_FORMAT: 'standard' };

/**
 * Asks slurmctld for the job's current end. `scontrol update` changes limits while jobs run, but SLURM_JOB_END_TIME
 * keeps its value.
 */
async function askEndTime(query: string, run: AskTool): Promise<EndTime> {
  const answer = await run('squeue', ['-h', '-j', query, '-o', '%e'], UTC_TIMES);
  if (!answer.ok) return { kind: 'unknown', reason: answer.reason };
  // A heterogeneous job has one line for each of its parts, all with the same end.
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

/** Reads SLURM_JOB_END_TIME, in seconds since 1970; Slurm 23.02 and later set it. */
function environmentEndTime(env: Env): Date | undefined {
  const seconds = env.SLURM_JOB_END_TIME;
  if (seconds === undefined || !/^\d{9,11}$/.test(seconds)) return undefined;
  return new Date(Number(seconds) * 1000);
}

/**
 * What ends the job, by scontrol(1), "show job". If a job is being ended, its state is COMPLETING for every cause; its
 * reason and PreemptTime distinguish the time limit and a preemption from scancel. During the grace time before a
 * preemption the job is still RUNNING.
 */
async function askFate(query: string, run: AskTool): Promise<JobFate | undefined> {
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

/** Finds the value of a name in a line of `name=value` words. */
function fieldOf(line: string, name: string): string {
  return new RegExp(`(?:^|\\s)${name}=(\\S+)`).exec(line)?.[1] ?? '';
}

/**
 * Until when the job continues after a SIGTERM that is only a warning. If SIGTERM ends a job, its state is COMPLETING
 * before its processes get the signal. If the state is still RUNNING, the SIGTERM was a warning (`--signal=TERM@120`),
 * or it announced a preemption with a grace time, which moves EndTime.
 */
async function askRunsUntil(query: string, run: AskTool): Promise<Date | undefined> {
  const answer = await run('scontrol', ['show', 'job', '--oneliner', query], UTC_TIMES);
  if (!answer.ok || fieldOf(answer.stdout, 'JobState') !== 'RUNNING') return undefined;
  return utcTime(fieldOf(answer.stdout, 'EndTime'));
}

/** Slurm's value of KillWait if it is not set: slurm.conf(5). */
const KILL_WAIT_DEFAULT_MS = 30_000;

/** Milliseconds between SIGTERM and SIGKILL at this site; Slurm's default if they cannot be read. */
async function killWaitMs(run: AskTool): Promise<number> {
  const answer = await run('scontrol', ['show', 'config']);
  const seconds = answer.ok ? /^KillWait\s*=\s*(\d+)/m.exec(answer.stdout)?.[1] : undefined;
  return seconds === undefined ? KILL_WAIT_DEFAULT_MS : Number(seconds) * 1000;
}
