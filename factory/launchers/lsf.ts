/** LSF 10.1, by the output in IBM's command reference: bsub(1), bjobs(1) with -json, bkill(1). Not tested with LSF. */
import * as z from 'zod';
import type { ClusterConfig } from '../config/schema.ts';
import { type BatchSystem, minutesOf, withLogRedirect } from './batch-system.ts';
import type { ListedJob, Submission } from './launcher.ts';

const JOB_ID = '$LSB_JOBID';

function flags({ name, pool, gpus }: Submission): string[] {
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

export function lsf(_cluster: ClusterConfig): BatchSystem {
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
  // bjobs prints this instead of an empty list.
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
