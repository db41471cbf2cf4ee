/** How jobs of a batch system are submitted, listed and cancelled: its commands, and what they print. */

export interface JobPool {
  /** Slurm's partition; the queue of the others. */
  name: string;
  /** Kind of its GPUs. */
  gpu: string;
  /** The system's own name of the GPUs. */
  gres?: string | undefined;
  /** In the form of `timeLimitMs`. */
  time: string;
  account?: string | undefined;
  qos?: string | undefined;
  constraint?: string | undefined;
  memory?: string | undefined;
  cpus?: number | undefined;
  /** Further options of the submission, one word each. */
  options: readonly string[];
}

export interface JobCluster {
  /** Slurm: --clusters. */
  clusters?: string | undefined;
  pools: readonly JobPool[];
}

export interface JobSubmission {
  /** Name that identifies the job in the list: `otela-FACTORY-CONTEXT-NUMBER`. */
  name: string;
  /** Number of identical jobs. */
  count: number;
  pool: JobPool;
  gpus: number;
  /** The part of the script below the directives. It contains the system's `jobId`. */
  body: string;
  /** Path of the output file of each job; `%j` is the job's id. */
  log: string;
}

/**
 * State of a listed job. `ended`: the system reports its end, for any reason. A job that is not listed has not
 * necessarily ended.
 */
type ListedState = 'pending' | 'running' | 'ended';

export interface ListedJob {
  id: string;
  name: string;
  state: ListedState;
  /** The system's text about why the job waits, or how it ended. */
  reason?: string;
  /**
   * Why the job ended: it finished, failed, was preempted by other jobs, lost its node, reached its time limit, or was
   * cancelled. Absent: unknown.
   */
  ended?: 'done' | 'failed' | 'preempted' | 'node' | 'time' | 'cancelled';
}

export interface Capacity {
  /** Name of the pool. */
  pool: string;
  /** GPUs of the pool's kind that no job uses. */
  idle: number;
}

interface Call {
  file: string;
  args: readonly string[];
  input?: string;
}

export interface BatchSystem {
  kind: 'slurm' | 'grid-engine' | 'htcondor' | 'pbs' | 'lsf' | 'flux';
  /** Whether it was tested with the real system, or only with recorded output. */
  seen: 'real' | 'recorded';
  /** A shell expression that gives the job's id inside the job. */
  jobId: string;
  /**
   * Matches the output of the commands if the batch system's server is unavailable; then the state of jobs is unknown.
   * Any other error is a refusal.
   */
  away: RegExp;
  /** Matches what its commands print before each error, such as their name; it is removed. */
  prefix?: RegExp;
  /** Starts one job, or `count` jobs if the system has `taskId`. */
  submit(submission: JobSubmission): Call;
  /** Returns the new job's id from the output of `submit`. */
  idIn(out: string): string | undefined;
  /** The id of a job of an array. Absent: the system gets each job separately. */
  taskId?(id: string, index: number): string;
  list: Call;
  /**
   * Parses the list of jobs, with any name.
   * @throws Error if the output is malformed, so that no job is considered missing
   */
  parse(out: string): ListedJob[];
  /** Absent: the system has no cheap way to report idle GPUs. */
  capacity?: Call & { parse(out: string, cluster: JobCluster): Capacity[] };
  cancel: {
    file: string;
    args(ids: readonly string[]): readonly string[];
    /** Matches the error about a job that has already ended; absent: there is no such error. */
    gone?: RegExp;
  };
  /** The command that checks whether a pool would accept the job, without submitting it. */
  check(submission: JobSubmission): Call;
}

/** Adds a redirection of output to the script, for systems whose output file name cannot contain the job's id. */
export function withLogRedirect({ body, log }: JobSubmission, jobId: string): string {
  const [before = '', after = ''] = log.split('%j');
  return `exec >>${quoted(before)}"$(printf %s "${jobId}" | tr -c 'A-Za-z0-9_.-' _)"${quoted(after)} 2>&1\n${body}`;
}

const quoted = (text: string) => (text === '' ? '' : `'${text.replaceAll("'", `'\\''`)}'`);
