/** Slurm by its commands, as the user of the factory: sbatch(1), squeue(1), sinfo(1), scancel(1) of 20.11 and later. */
import { gpuClass } from '../../shared/hardware/gpu-classes.ts';
import { freeGpus, isGpuSlice } from '../../shared/slurm/gpu-gres.ts';
import { takesJobs } from '../../shared/slurm/node-state.ts';
import type { ClusterConfig, PoolConfig } from '../config/schema.ts';
import type { CommandResult, RunCommand } from './command-runner.ts';
import {
  type Capacity,
  type CheckFinding,
  type Launcher,
  LauncherError,
  type ListedJob,
  type Submission,
} from './launcher.ts';

/** The agent begins to drain this many seconds before the job's end. */
const BEFORE_END_S = 120;
/** Maximum ids of one scancel: a command line has a maximum length. */
const IDS_PER_CALL = 200;
/** One job per line. Only the reason may contain a vertical bar, and it is the last field. */
const SQUEUE_FORMAT = '%i|%j|%T|%r';
const SINFO_FORMAT = 'NodeHost:128,|:1,Partition:128,|:1,StateCompact:40,|:1,Gres:400,|:1,GresUsed:400';
/** Matches Slurm's output if its controller is unavailable: the job may exist. Any other error is a refusal. */
const CONTROLLER_UNAVAILABLE =
  /unable to contact slurm controller|socket timed out|connection refused|communication|zero bytes were transmitted|slurm backup controller|unable to establish|DNS SRV lookup failed/i;

/** A job's id as squeue and scancel write it: a task of an array is 123_4. */
// biome-ignore lint/suspicious/noTemplateCurlyInString: the shell's braces
const JOB_ID = '${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}';

export function slurmLauncher(cluster: ClusterConfig, run: RunCommand): Launcher {
  const where = cluster.clusters === undefined ? [] : [`--clusters=${cluster.clusters}`];
  return {
    kind: 'slurm',
    jobId: JOB_ID,
    seen: 'real',
    async submit(submission) {
      const out = outputOf(await run('sbatch', [...where, '--parsable'], script(submission)), 'submit');
      // Some sites print a message before the id, and a line of it may begin with a number.
      const id = [...out.matchAll(/^(\d+)(?:;\S+)?[ \t\r]*$/gm)].at(-1)?.[1];
      if (id === undefined) throw new LauncherError('unclear', `sbatch printed "${out.slice(0, 200)}", not a job id`);
      return submission.count === 1 ? [id] : Array.from({ length: submission.count }, (_, n) => `${id}_${n}`);
    },
    async list(prefix) {
      const flags = ['--noheader', '--me', '--array', '--states=all', `--format=${SQUEUE_FORMAT}`];
      return parseJobs(outputOf(await run('squeue', [...where, ...flags]), 'ask'), prefix);
    },
    async capacity() {
      return parseNodes(
        outputOf(await run('sinfo', [...where, '--noheader', '-N', '-O', SINFO_FORMAT]), 'ask'),
        cluster.pools,
      );
    },
    async cancel(ids) {
      for (let n = 0; n < ids.length; n += IDS_PER_CALL)
        outputOf(await run('scancel', [...where, '--quiet', ...ids.slice(n, n + IDS_PER_CALL)]), 'ask');
    },
    async check(submission): Promise<CheckFinding> {
      const result = await run('sbatch', [...where, '--test-only'], script(submission));
      if (result.kind !== 'done' || CONTROLLER_UNAVAILABLE.test(result.errors))
        throw new LauncherError('unreachable', result.errors);
      const text = result.errors.replace(/^sbatch: (error: )?/gm, '').replace(/\s+/g, ' ');
      return { ok: result.code === 0, text };
    },
  };
}

/** @throws LauncherError */
function outputOf(result: CommandResult, what: 'submit' | 'ask'): string {
  if (result.kind === 'missing')
    throw new LauncherError('unreachable', `${result.errors}; is this a login node of the cluster?`);
  if (result.kind === 'killed') throw new LauncherError(what === 'submit' ? 'unclear' : 'unreachable', result.errors);
  if (result.code === 0) return result.out;
  const text = result.errors.replace(/^\w+: (error: )?/gm, '').replace(/\s+/g, ' ');
  if (CONTROLLER_UNAVAILABLE.test(text)) throw new LauncherError(what === 'submit' ? 'unclear' : 'unreachable', text);
  throw new LauncherError('refused', text);
}

/** Returns the whole script for sbatch. */
function script({ name, count, pool, gpus, body, log }: Submission): string {
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
    // A requeued job would be a job that the factory did not submit.
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

/** All other states of squeue are ends: squeue(1), JOB STATE CODES. */
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

function parseJobs(out: string, prefix: string): ListedJob[] {
  return out.split('\n').flatMap((line): ListedJob[] => {
    const [id = '', name = '', word = '', ...rest] = line.trim().split('|');
    // With --clusters, one line names the cluster and is skipped.
    if (!/^\d+(_\d+)?$/.test(id) || !name.startsWith(prefix)) return [];
    const reason = rest.join('|');
    if (PENDING.has(word)) return [{ id, name, state: 'pending', reason }];
    if (RUNNING.has(word)) return [{ id, name, state: 'running' }];
    const ended = ENDED[word.split(' ')[0] ?? ''];
    return [{ id, name, state: 'ended', reason: word, ...(ended === undefined ? {} : { ended }) }];
  });
}

function parseNodes(out: string, pools: readonly PoolConfig[]): Capacity[] {
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

/** True if the GPU belongs to the pool. A slice of a GPU does only if the pool names it. */
function isOfPool(type: string | undefined, pool: PoolConfig): boolean {
  if (type === undefined) return true;
  return pool.gres === undefined ? !isGpuSlice(type) && gpuClass(type) === gpuClass(pool.gpu) : type === pool.gres;
}
