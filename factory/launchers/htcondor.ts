/**
 * HTCondor 10 and later: condor_submit(1), condor_q(1) with -json, condor_rm(1). Tested with 23.9:
 * test/soak/htcondor.ts.
 */
import * as z from 'zod';
import type { ClusterConfig } from '../config/schema.ts';
import { type BatchSystem, minutesOf, withLogRedirect } from './batch-system.ts';
import type { Capacity, ListedJob, Submission } from './launcher.ts';

const JOB_ID = '$OTELA_CONDOR_ID';
/**
 * A job that HTCondor has held for this long needs an operator. It is removed, and the factory retries it with its
 * back-off.
 */
const HELD_MAX_S = 600;
/** HTCondor's HoldReasonCode of a job that exceeded allowed_execute_duration. */
const TIME_OVER = 47;

function description(submission: Submission): string {
  const { name, pool, gpus } = submission;
  const script = withLogRedirect(submission, JOB_ID);
  return [
    'universe = vanilla',
    `batch_name = ${name}`,
    'executable = /bin/bash',
    'transfer_executable = false',
    // As one word of the environment, which avoids the quotes of three languages around a script. The agent replaces
    // bash, which passes TERM to the agent.
    `arguments = "-c 'eval ""$(printf %s $OTELA_SCRIPT | base64 -d)""'"`,
    `environment = "OTELA_CONDOR_ID=$(ClusterId).$(ProcId) OTELA_SCRIPT=${Buffer.from(script).toString('base64')}"`,
    `request_gpus = ${gpus}`,
    ...(pool.cpus === undefined ? [] : [`request_cpus = ${pool.cpus}`]),
    ...(pool.memory === undefined ? [] : [`request_memory = ${pool.memory}`]),
    ...(pool.constraint === undefined ? [] : [`requirements = ${pool.constraint}`]),
    ...(pool.account === undefined ? [] : [`accounting_group = ${pool.account}`]),
    'kill_sig = SIGTERM',
    'want_graceful_removal = true',
    'job_max_vacate_time = 120',
    // In the job's ad, so that an agent knows its end. HTCondor holds a job that runs for longer; periodic_remove
    // removes it.
    `allowed_execute_duration = ${minutesOf(pool.time) * 60}`,
    `periodic_remove = (JobStatus == 5 && (HoldReasonCode =?= ${TIME_OVER} || time() - EnteredCurrentStatus > ${HELD_MAX_S})) || (JobStatus == 2 && time() - EnteredCurrentStatus > ${minutesOf(pool.time) * 60})`,
    ...pool.options,
    'queue',
    '',
  ].join('\n');
}

export function htcondor(_cluster: ClusterConfig): BatchSystem {
  return {
    kind: 'htcondor',
    seen: 'real',
    jobId: JOB_ID,
    away: /failed to connect|can't find address|failed to fetch ads|unable to locate|communication error|timed out/i,
    submit: (submission) => ({ file: 'condor_submit', args: ['-terse', '-'], input: description(submission) }),
    idIn: (out) => /^(\d+\.\d+) - \d+\.\d+$/m.exec(out.trim())?.[1],
    list: {
      file: 'condor_q',
      args: ['-json', '-attributes', 'ClusterId,ProcId,JobBatchName,JobStatus,HoldReasonCode,HoldReason'],
    },
    parse: parseJobs,
    capacity: {
      file: 'condor_status',
      args: ['-constraint', 'State == "Unclaimed" && GPUs > 0', '-autoformat', 'GPUs'],
      parse: parseSlots,
    },
    cancel: { file: 'condor_rm', args: (ids) => [...ids], gone: /not found|couldn't find/i },
    check: (submission) => ({
      file: 'condor_submit',
      args: ['-dry-run', '/dev/null', '-'],
      input: description(submission),
    }),
  };
}

const jobsSchema = z.array(
  z.object({
    ClusterId: z.number(),
    ProcId: z.number(),
    JobBatchName: z.string().optional(),
    JobStatus: z.number(),
    HoldReasonCode: z.number().optional(),
    HoldReason: z.string().optional(),
  }),
);

/** The queue does not list ended jobs; an evicted job waits in it again. */
function parseJobs(out: string): ListedJob[] {
  // HTCondor prints nothing for an empty queue.
  if (out.trim() === '') return [];
  return jobsSchema
    .parse(JSON.parse(out))
    .map(({ ClusterId, ProcId, JobBatchName = '', JobStatus, HoldReasonCode, HoldReason }): ListedJob => {
      const named = { id: `${ClusterId}.${ProcId}`, name: JobBatchName };
      if (JobStatus === 5 && HoldReasonCode === TIME_OVER)
        return { ...named, state: 'ended', ended: 'time', ...(HoldReason === undefined ? {} : { reason: HoldReason }) };
      switch (JobStatus) {
        case 2:
        case 6:
        case 7:
          return { ...named, state: 'running' };
        case 3:
          return { ...named, state: 'ended', ended: 'cancelled' };
        case 4:
          return { ...named, state: 'ended', ended: 'done' };
        default:
          return { ...named, state: 'pending', reason: HoldReason ?? (JobStatus === 5 ? 'held' : 'idle') };
      }
    });
}

/** Sums idle GPUs. Slots do not name their pool, since requirements select it, so all GPUs count for the first pool. */
function parseSlots(out: string, { pools }: ClusterConfig): Capacity[] {
  const idle = out.split('\n').reduce((sum, line) => sum + (/^\d+$/.test(line.trim()) ? Number(line) : 0), 0);
  return pools.slice(0, 1).map(({ name }) => ({ pool: name, idle }));
}
