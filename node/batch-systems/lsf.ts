/**
 * LSF 10.1: bsub(1), bjobs(1) with -json, bkill(1). Written from the output in IBM's command reference; not tested with
 * LSF.
 */
import * as z from 'zod';
import { type AskTool, type BatchJob, type EndTime, type Env, firstLabel, type JobFate } from './batch-job.ts';
import { type BatchSystem, type JobSubmission, type ListedJob, withLogRedirect } from './batch-system.ts';
import { minutesOf } from './time-limit.ts';

const JOB_ID = '$LSB_JOBID';

function flags({ name, pool, gpus }: JobSubmission): string[] {
  return [
    '-J',
    name,
    '-q',
    pool.name,
    '-gpu',
    `num=${gpus}`,
    '-W',
    String(minutesOf(pool.time)),
    ...(pool.cpus === undefined ? [] : ['-n', String(pool.cpus), '-R', 'span[hosts=1]']),
    ...(pool.memory === undefined ? [] : ['-M', pool.memory]),
    ...(pool.account === undefined ? [] : ['-P', pool.account]),
    ...(pool.constraint === undefined ? [] : ['-R', pool.constraint]),
    '-o',
    '/dev/null',
    '-rn',
    ...pool.options.map((one) => (one.startsWith('-') ? one : `-${one}`)),
  ];
}

export function lsf(): BatchSystem {
  return {
    kind: 'lsf',
    seen: 'recorded',
    jobId: JOB_ID,
    away: /LSF is down|batch daemon not responding|please wait|failed in an LSF library call|connection refused/i,
    submit: (submission) => ({
      file: 'bsub',
      args: flags(submission),
      input: `#!/bin/bash\n${withLogRedirect(submission, JOB_ID)}`,
    }),
    idIn: (out) => /Job <(\d+)> is submitted/.exec(out)?.[1],
    list: { file: 'bjobs', args: ['-a', '-json', '-o', 'jobid job_name stat exit_reason pend_reason'] },
    parse: parseJobs,
    cancel: { file: 'bkill', args: (ids) => [...ids], gone: /already finished|no matching job|is not found/i },
    check: ({ pool }) => ({ file: 'bqueues', args: [pool.name] }),
  };
}

const recordsSchema = z.object({
  RECORDS: z.array(
    z.object({
      JOBID: z.string(),
      JOB_NAME: z.string(),
      STAT: z.string(),
      EXIT_REASON: z.string().optional(),
      PEND_REASON: z.string().optional(),
    }),
  ),
});

function parseJobs(out: string): ListedJob[] {
  // For an empty list, bjobs prints this text.
  if (/^No (unfinished )?job found/.test(out.trim())) return [];
  return recordsSchema.parse(JSON.parse(out)).RECORDS.map((job): ListedJob => {
    const named = { id: job.JOBID, name: job.JOB_NAME };
    switch (job.STAT) {
      case 'RUN':
      case 'USUSP':
      case 'SSUSP':
      case 'UNKWN':
        return { ...named, state: 'running' };
      case 'DONE':
        return { ...named, state: 'ended', ended: 'done' };
      case 'EXIT':
      case 'ZOMBI': {
        const reason = job.EXIT_REASON ?? '';
        const ended = /TERM_RUNLIMIT/.test(reason)
          ? 'time'
          : /TERM_PREEMPT/.test(reason)
            ? 'preempted'
            : /TERM_OWNER|TERM_ADMIN|TERM_FORCE/.test(reason)
              ? 'cancelled'
              : 'failed';
        return { ...named, state: 'ended', ended, ...(reason === '' ? {} : { reason }) };
      }
      default:
        return { ...named, state: 'pending', reason: job.PEND_REASON || job.STAT };
    }
  });
}

const ownJobSchema = z.object({
  RECORDS: z.tuple([
    z.object({ STAT: z.string(), TIME_LEFT: z.string().optional(), EXIT_REASON: z.string().optional() }),
  ]),
});
type OwnJob = z.infer<typeof ownJobSchema>['RECORDS'][0];

/**
 * bjobs reports the remaining time in whole minutes. Computed ends that differ by at most this much are the same end.
 */
const STEP_MS = 90_000;

/** LSF's default of JOB_TERMINATE_INTERVAL, the time from SIGINT to SIGTERM, and from SIGTERM to SIGKILL. */
const KILL_WAIT_MS = 10_000;

export function lsfJob(env: Env): BatchJob | undefined {
  const number = env.LSB_JOBID;
  if (number === undefined || !/^\d{1,20}$/.test(number)) return undefined;
  const index = env.LSB_JOBINDEX;
  const id = index !== undefined && /^[1-9]\d{0,9}$/.test(index) ? `${number}[${index}]` : number;
  let known: number | undefined;
  return {
    system: 'LSF',
    id,
    node: firstLabel(env.HOSTNAME),
    partition: env.LSB_QUEUE?.slice(0, 64),
    ends: undefined,
    askEnd: async (run): Promise<EndTime> => {
      const told = await ask(id, run);
      if (typeof told === 'string') return { kind: 'unknown', reason: told };
      const [, hours, minutes] = /^(\d+):(\d+) L$/.exec(told.TIME_LEFT?.trim() ?? '') ?? [];
      // A job without a limit has `-` here, or an estimate that ends in `E`.
      if (hours === undefined || minutes === undefined) return { kind: 'known', ends: undefined };
      const ends = Date.now() + (Number(hours) * 60 + Number(minutes)) * 60_000;
      if (known === undefined || Math.abs(ends - known) > STEP_MS) known = ends;
      return { kind: 'known', ends: new Date(known) };
    },
    askFate: async (run) => {
      const told = await ask(id, run);
      return typeof told === 'string' ? undefined : fateOf(told);
    },
    killWaitMs: async () => KILL_WAIT_MS,
  };
}

/** Asks bjobs about the job. Returns what it prints, or the reason for a failure. */
async function ask(id: string, run: AskTool): Promise<OwnJob | string> {
  const answer = await run('bjobs', ['-a', '-json', '-o', 'stat time_left exit_reason', id]);
  if (!answer.ok) return answer.reason;
  try {
    return ownJobSchema.parse(JSON.parse(answer.stdout)).RECORDS[0];
  } catch {
    return 'the output of bjobs has an unknown format';
  }
}

/** Reasons by lsb.acct(5), "Termination reasons". */
function fateOf({ STAT, EXIT_REASON: reason = '' }: OwnJob): JobFate | undefined {
  if (/TERM_PREEMPT/.test(reason)) return 'preempted';
  if (/TERM_RUNLIMIT|TERM_DEADLINE|TERM_WINDOW/.test(reason)) return 'time-limit';
  if (/TERM_MEMLIMIT|TERM_SWAP/.test(reason)) return 'out-of-memory';
  return STAT === 'EXIT' || STAT === 'ZOMBI' || /TERM_(OWNER|ADMIN|FORCE)/.test(reason) ? 'cancelled' : undefined;
}
