/** The jobs of a run, as squeue(1) lists them. */
import { shellQuoted } from '../host/shell-words.ts';

type JobStage = 'pending' | 'running' | 'ended';

export interface RunJob {
  id: string;
  state: JobStage;
  /** Slurm's reason why the job waits, or its final state. */
  reason: string;
  /** When it started or is expected to start, in ms since 1970; undefined if unknown. */
  startMs: number | undefined;
}

/** States in which squeue shows jobs that wait, and jobs that run: squeue(1), JOB STATE CODES. */
const PENDING = /^(?:PENDING|CONFIGURING|REQUEUE|RESV_DEL_HOLD|SPECIAL_EXIT)/;
const RUNNING = /^(?:RUNNING|COMPLETING|SIGNALING|STAGE_OUT|RESIZING|SUSPENDED|STOPPED)/;

/** @param state as squeue's `%T` shows it */
export function jobStage(state: string): JobStage {
  if (PENDING.test(state)) return 'pending';
  return RUNNING.test(state) ? 'running' : 'ended';
}

/** Slurm keeps ended jobs in this list for some minutes. */
export function jobListScript(name: string): string {
  return `env TZ=UTC squeue --noheader --me --states=all --name=${shellQuoted(name)} --format='job=%A|%T|%r|%S'`;
}

/** @returns the jobs in the order of their submission */
export function parseJobList(out: string): RunJob[] {
  const found = out.matchAll(/^job=(\d{1,12})\|(\w+)\|([^|\n]*)\|(\S*)\s*$/gm);
  return [...found]
    .map(([, id = '', word = '', reason = '', start = '']): RunJob => {
      const state = jobStage(word);
      const startMs = /^\d{4}-\d\d-\d\dT/.test(start) ? Date.parse(`${start}Z`) : undefined;
      return { id, state, reason: state === 'ended' ? word : reason.trim(), startMs };
    })
    .toSorted((a, b) => Number(a.id) - Number(b.id));
}
