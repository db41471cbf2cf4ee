/**
 * HTCondor 10 and later: condor_submit(1), condor_q(1) with -json, condor_rm(1), and the job's ad in the file
 * `_CONDOR_JOB_AD`. Run with 23.9: test/soak/htcondor.ts.
 */
import { closeSync, openSync, readSync } from 'node:fs';
import * as z from 'zod';
import { type AskTool, type BatchJob, type Env, firstLabel, type JobFate } from './batch-job.ts';
import {
  type BatchSystem,
  type Capacity,
  type JobCluster,
  type JobSubmission,
  type ListedJob,
  withLogRedirect,
} from './batch-system.ts';
import { minutesOf } from './time-limit.ts';

const JOB_ID = '$HTCONDOR_JOB_ID';
/**
 * A job that HTCondor has held for this long needs an operator. It is removed, and the factory submits a new one after
 * its back-off.
 */
const HELD_MAX_S = 600;
/** Values of `JobStatus` in a job's ad. */
const STATUS = { idle: 1, running: 2, removed: 3, completed: 4, held: 5, transferring: 6, suspended: 7 } as const;
/** HoldReasonCode of a job that exceeded allowed_execute_duration. */
const TIME_OVER = 47;

/** Quotes a path for a submit file, which expands `$(…)`. */
const submitPath = (path: string) => path.replaceAll('$', '$(DOLLAR)');

/**
 * Without a common file system, HTCondor brings the files to the job's directory, and sends the output back while the
 * job runs, so that the factory sees if a job has printed something. The script joins its two outputs, because HTCondor
 * would write both at the same place of the file.
 */
function transferLines(files: readonly string[], log: string): string[] {
  const output = log.split('%j').map(submitPath).join('$(ClusterId).$(ProcId)');
  return [
    'should_transfer_files = YES',
    'when_to_transfer_output = ON_EXIT',
    `transfer_input_files = ${files.map(submitPath).join(', ')}`,
    // Otherwise each new file in the job's directory would be sent back.
    'transfer_output_files = ""',
    `output = ${output}`,
    'stream_output = true',
  ];
}

function description(submission: JobSubmission, transferred: readonly string[] | undefined): string {
  const { name, pool, gpus, log } = submission;
  const script = transferred === undefined ? withLogRedirect(submission, JOB_ID) : `exec 2>&1\n${submission.body}`;
  return [
    'universe = vanilla',
    `batch_name = ${name}`,
    'executable = /bin/bash',
    'transfer_executable = false',
    // The script is one word of the environment, encoded in base64, because a script would need quotes of three
    // languages. The agent replaces bash, so that HTCondor's TERM reaches the agent.
    `arguments = "-c 'eval ""$(printf %s $HTCONDOR_SCRIPT | base64 -d)""'"`,
    `environment = "HTCONDOR_JOB_ID=$(ClusterId).$(ProcId) HTCONDOR_SCRIPT=${Buffer.from(script).toString('base64')}"`,
    ...(transferred === undefined ? [] : transferLines(transferred, log)),
    `request_gpus = ${gpus}`,
    ...(pool.cpus === undefined ? [] : [`request_cpus = ${pool.cpus}`]),
    ...(pool.memory === undefined ? [] : [`request_memory = ${pool.memory}`]),
    ...(pool.constraint === undefined ? [] : [`requirements = ${pool.constraint}`]),
    ...(pool.account === undefined ? [] : [`accounting_group = ${pool.account}`]),
    'kill_sig = SIGTERM',
    'want_graceful_removal = true',
    'job_max_vacate_time = 120',
    // This limit is in the job's ad, so that an agent knows its end. HTCondor holds a job that runs longer;
    // periodic_remove then removes it.
    `allowed_execute_duration = ${minutesOf(pool.time) * 60}`,
    `periodic_remove = (JobStatus == ${STATUS.held} && (HoldReasonCode =?= ${TIME_OVER} || time() - EnteredCurrentStatus > ${HELD_MAX_S})) || (JobStatus == ${STATUS.running} && time() - EnteredCurrentStatus > ${minutesOf(pool.time) * 60})`,
    ...pool.options,
    'queue',
    '',
  ].join('\n');
}

export function htcondor({ transfer_files: transferred }: Pick<JobCluster, 'transfer_files'> = {}): BatchSystem {
  return {
    kind: 'htcondor',
    seen: 'real',
    jobId: JOB_ID,
    away: /failed to connect|can't find address|make sure the condor daemons are running|failed to fetch ads|unable to locate|communication error|timed out/i,
    submit: (submission) => ({
      file: 'condor_submit',
      args: ['-terse', '-'],
      input: description(submission, transferred),
    }),
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
      input: description(submission, transferred),
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

/** The queue does not list ended jobs. A job that was evicted waits in the queue again. */
function parseJobs(out: string): ListedJob[] {
  // HTCondor prints nothing for an empty queue.
  if (out.trim() === '') return [];
  return jobsSchema
    .parse(JSON.parse(out))
    .map(({ ClusterId, ProcId, JobBatchName = '', JobStatus, HoldReasonCode, HoldReason }): ListedJob => {
      const named = { id: `${ClusterId}.${ProcId}`, name: JobBatchName };
      if (JobStatus === STATUS.held && HoldReasonCode === TIME_OVER)
        return { ...named, state: 'ended', ended: 'time', ...(HoldReason === undefined ? {} : { reason: HoldReason }) };
      switch (JobStatus) {
        case STATUS.running:
        case STATUS.transferring:
        case STATUS.suspended:
          return { ...named, state: 'running' };
        case STATUS.removed:
          return { ...named, state: 'ended', ended: 'cancelled' };
        case STATUS.completed:
          return { ...named, state: 'ended', ended: 'done' };
        default:
          return { ...named, state: 'pending', reason: HoldReason ?? (JobStatus === STATUS.held ? 'held' : 'idle') };
      }
    });
}

/**
 * Sums idle GPUs. HTCondor's slots belong to no pool, because jobs select slots by requirements. So all idle GPUs count
 * for the first pool.
 */
function parseSlots(out: string, { pools }: JobCluster): Capacity[] {
  const idle = out.split('\n').reduce((sum, line) => sum + (/^\d+$/.test(line.trim()) ? Number(line) : 0), 0);
  return pools.slice(0, 1).map(({ name }) => ({ pool: name, idle }));
}

/** Maximum size of a job's ad, which normally has about ten KiB. */
const AD_MAX_BYTES = 256 * 1024;

export function htcondorJob(env: Env): BatchJob | undefined {
  const path = env._CONDOR_JOB_AD;
  const ad = path === undefined ? undefined : readAd(path);
  const [cluster, proc] = [ad?.get('clusterid'), ad?.get('procid')];
  if (ad === undefined || cluster === undefined || proc === undefined) return undefined;
  if (!/^\d{1,12}$/.test(cluster) || !/^\d{1,12}$/.test(proc)) return undefined;
  const id = `${cluster}.${proc}`;
  return {
    system: 'HTCondor',
    id,
    node: firstLabel(env.HOSTNAME),
    partition: undefined,
    ends: endOf(ad),
    askFate: (run) => askFate(id, run),
    killWaitMs: async () => {
      const seconds = Number(ad.get('jobmaxvacatetime'));
      return seconds > 0 ? seconds * 1000 : undefined;
    },
  };
}

/** Reads the job's ad. Names are in lower case, because HTCondor ignores case. Undefined if the file cannot be read. */
function readAd(path: string): Map<string, string> | undefined {
  try {
    const file = openSync(path, 'r');
    try {
      const buffer = Buffer.alloc(AD_MAX_BYTES);
      const text = buffer.toString('utf8', 0, readSync(file, buffer));
      const pairs = text.split('\n').flatMap((line): [string, string][] => {
        const [, name = '', value = ''] = /^(\w+)\s*=\s*(.*)$/.exec(line.trim()) ?? [];
        return name === '' ? [] : [[name.toLowerCase(), value]];
      });
      return new Map(pairs);
    } finally {
      closeSync(file);
    }
  } catch {
    return undefined;
  }
}

/** The job's end: the earlier of two limits in its ad, allowed_execute_duration and allowed_job_duration. */
function endOf(ad: ReadonlyMap<string, string>): Date | undefined {
  const after = (since: string, duration: string) => Number(ad.get(since)) + Number(ad.get(duration));
  const ends = [
    after('jobcurrentstartexecutingdate', 'allowedexecuteduration'),
    after('jobcurrentstartdate', 'allowedexecuteduration'),
    after('jobcurrentstartdate', 'allowedjobduration'),
  ].filter((seconds) => seconds > 0);
  return ends.length === 0 ? undefined : new Date(Math.min(...ends) * 1000);
}

const statusSchema = z.array(z.object({ JobStatus: z.number() }));

async function askFate(id: string, run: AskTool): Promise<JobFate | undefined> {
  const answer = await run('condor_q', [id, '-json', '-attributes', 'JobStatus']);
  if (!answer.ok || answer.stdout.trim() === '') return undefined;
  try {
    const status = statusSchema.parse(JSON.parse(answer.stdout))[0]?.JobStatus;
    // A job that was evicted waits in the queue again, so `idle` means preempted.
    return status === STATUS.removed ? 'cancelled' : status === STATUS.idle ? 'preempted' : undefined;
  } catch {
    return undefined;
  }
}
