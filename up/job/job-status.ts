/** The state of a run's job, its place in the queue and its expected start. */

import { shellQuoted } from '../host/shell-words.ts';
import { jobStage } from './run-job-list.ts';

export type JobStatus =
  | { kind: 'pending'; reason: string; position: number; waiting: number; starts: string | undefined }
  | { kind: 'running'; node: string }
  | { kind: 'ended'; state: string }
  /** Slurm or the host did not answer. */
  | { kind: 'unknown'; reason: string };

/** Ids of jobs: digits, so that they cannot be shell words. */
const JOB_ID = /^\d{1,12}$/;
/** Precedes the status: the login shell's profile may print, too. */
const STATUS_MARK = 'otela-status 1';
/** Jobs that are counted for the position in the queue. */
const QUEUE_MAX = 10_000;

/** @param partition of the job; its pending jobs are listed by priority */
export function statusScript(job: string, partition: string): string {
  if (!JOB_ID.test(job)) throw new RangeError(`"${job}" is not a job's id`);
  return `export TZ=UTC
echo '${STATUS_MARK}'
squeue --noheader --states=all --jobs=${job} --format='job=%T|%r|%S|%N' 2>&1
squeue --noheader --states=PENDING --partition=${shellQuoted(partition)} --sort=-p,i --format='waits=%A' 2>/dev/null | head -n ${QUEUE_MAX}
true`;
}

export function parseStatus(job: string, out: string): JobStatus {
  const at = out.indexOf(STATUS_MARK);
  if (at < 0) return { kind: 'unknown', reason: 'the login shell did not run the commands of Slurm' };
  const lines = out
    .slice(at + STATUS_MARK.length)
    .split('\n')
    .map((line) => line.trim());
  const found = lines.find((line) => line.startsWith('job='))?.slice('job='.length);
  if (found === undefined) {
    const said = lines.find((line) => line !== '' && !line.startsWith('waits=')) ?? '';
    // Slurm forgets a job some minutes after its end.
    return said === '' || /invalid job id/i.test(said)
      ? { kind: 'ended', state: 'ended' }
      : { kind: 'unknown', reason: said.slice(0, 200) };
  }
  const [state = '', reason = '', start = '', node = ''] = found.split('|');
  const stage = jobStage(state);
  if (stage === 'running') return { kind: 'running', node };
  if (stage === 'ended') return { kind: 'ended', state };
  const queue = lines.flatMap((line) => (line.startsWith('waits=') ? [line.slice('waits='.length)] : []));
  const starts = /^\d{4}-\d\d-\d\dT/.test(start) ? start : undefined;
  return { kind: 'pending', reason, position: queue.indexOf(job) + 1, waiting: queue.length, starts };
}

/** One line for the terminal. */
export function statusText(job: string, status: JobStatus, now: Date): string {
  switch (status.kind) {
    case 'pending': {
      const place = status.position > 0 ? `, place ${status.position} of ${status.waiting} in the queue` : '';
      return `job ${job} waits (${status.reason}${place}${startText(status.starts, now)})`;
    }
    case 'running':
      return `job ${job} runs on ${status.node}: the engine loads`;
    case 'ended':
      return `job ${job} has ended (${status.state})`;
    case 'unknown':
      return `the state of job ${job} is unknown: ${status.reason}`;
  }
}

function startText(starts: string | undefined, now: Date): string {
  const minutes = starts === undefined ? Number.NaN : Math.round((Date.parse(`${starts}Z`) - now.getTime()) / 60_000);
  if (!(minutes >= 0)) return '';
  return minutes < 120 ? `, starts in about ${minutes} min` : `, starts in about ${Math.round(minutes / 60)} h`;
}
