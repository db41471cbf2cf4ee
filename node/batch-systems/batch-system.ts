/** How jobs of a batch system are submitted, listed and cancelled: its commands, and what they print. */

export interface JobPool {
  /** Name of the partition in Slurm, and of the queue in other systems. */
  name: string;
  /** Kind of the pool's GPUs. */
  gpu: string;
  /** Name of these GPUs in the batch system. */
  gres?: string | undefined;
  /** Time limit of a job, in the form of `timeLimitMs`. */
  time: string;
  account?: string | undefined;
  qos?: string | undefined;
  constraint?: string | undefined;
  memory?: string | undefined;
  cpus?: number | undefined;
  /** Further options for the submission, one word each. */
  options: readonly string[];
}

export interface JobCluster {
  /** Clusters for Slurm's option --clusters. */
  clusters?: string | undefined;
  /** HTCondor: files that each job gets in its directory. Absent: jobs see the file system of the submitting machine. */
  transfer_files?: readonly string[] | undefined;
  pools: readonly JobPool[];
}

export interface JobSubmission {
  /** Name that identifies the job in the list: `otela-FACTORY-CONTEXT-NUMBER`. */
  name: string;
  /** Number of identical jobs to submit. */
  count: number;
  pool: JobPool;
  gpus: number;
  /** The part of the script below the directives. It contains the expression `jobId` of the batch system. */
  body: string;
  /** Hosts on which the jobs must not run. Only systems that list the hosts of jobs get them. */
  exclude?: readonly string[];
  /** Path of each job's output file; `%j` in it stands for the job's id. */
  log: string;
}

/**
 * State of a listed job. `ended`: the system reports that the job has ended, for any reason. A job that is missing in
 * the list may still exist.
 */
type ListedState = 'pending' | 'running' | 'ended';

export interface ListedJob {
  id: string;
  name: string;
  state: ListedState;
  /** The host on which the job runs or ran. Absent: unknown. */
  host?: string;
  /** The batch system's text about why the job waits, or how it ended. */
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
  /** Number of GPUs of the pool's kind that no job uses. */
  idle: number;
}

interface Call {
  file: string;
  args: readonly string[];
  input?: string;
}

export interface BatchSystem {
  kind: 'slurm' | 'grid-engine' | 'htcondor' | 'pbs' | 'lsf' | 'flux';
  /**
   * `real`: these commands and parsers were tested with the real system. `recorded`: they were tested only with
   * recorded output.
   */
  seen: 'real' | 'recorded';
  /** A shell expression that gives the job's id inside the job. */
  jobId: string;
  /**
   * Matches the output of a command if the batch system's server is unavailable. The state of jobs is then unknown. Any
   * other error means that the server refused the request.
   */
  away: RegExp;
  /** Matches the text that a command prints before each error, such as its name. This text is removed. */
  prefix?: RegExp;
  /** The command that submits one job, or `count` jobs if the system has `taskId`. */
  submit(submission: JobSubmission): Call;
  /** Finds the new job's id in the output of `submit`. */
  idIn(out: string): string | undefined;
  /** Id of one job of an array of jobs. Absent: each job is submitted separately. */
  taskId?(id: string, index: number): string;
  list: Call;
  /**
   * Parses the list of jobs, which may include jobs with other names.
   *
   * @throws Error if the output is malformed, because jobs that are missing in an incomplete list would count as ended
   */
  parse(out: string): ListedJob[];
  /** The command that reports idle GPUs. Absent: the system has no cheap command for that. */
  capacity?: Call & { parse(out: string, cluster: JobCluster): Capacity[] };
  cancel: {
    file: string;
    args(ids: readonly string[]): readonly string[];
    /** Matches the error about a job that has already ended. Absent: cancelling such a job causes no error. */
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
