/** The batch job in which an agent runs, for any batch system: the job's name, its end, and the cause of its end. */
/** Runs a program of the batch system, such as `squeue`. The result reports a failure; the promise never rejects. */
export type AskTool = (
  file: string,
  args: readonly string[],
  env?: Readonly<Record<string, string>>,
) => Promise<{ ok: true; stdout: string } | { ok: false; reason: string }>;

export type Env = Readonly<Record<string, string | undefined>>;

/**
 * The end of a job. `known` without `ends`: the job has no limit. `unknown`: the batch system did not answer; the
 * caller continues to use the last known end.
 */
export type EndTime = { kind: 'known'; ends: Date | undefined } | { kind: 'unknown'; reason: string };

/** What ends a job, as written in the registry; see shared/lattice/departure-cause.ts. */
export type JobFate = 'cancelled' | 'time-limit' | 'preempted' | 'out-of-memory' | 'node-failure';

export interface BatchJob {
  /** Common name of the batch system. */
  system: string;
  /** The job's id, as the batch system prints it. */
  id: string;
  /** Name of this machine in the batch system. */
  node: string | undefined;
  /** The partition or queue in which the job runs. */
  partition: string | undefined;
  /** The job's end according to environment variables, which do not change if the limit is changed later. */
  ends: Date | undefined;
  /** Asks the batch system for the job's end. Absent: this system cannot be asked. */
  askEnd?(run: AskTool): Promise<EndTime>;
  /** Asks what ends the job. Undefined: the job is not ending, or the system does not report the cause. */
  askFate(run: AskTool): Promise<JobFate | undefined>;
  /**
   * Asks until when the job continues after a SIGTERM that is only a warning. Undefined: the system does not report
   * that the job continues. Absent: the system can never report it.
   */
  askRunsUntil?(run: AskTool): Promise<Date | undefined>;
  /** Milliseconds between SIGTERM and SIGKILL; undefined: unknown. */
  killWaitMs(run: AskTool): Promise<number | undefined>;
}

/** A machine's name without its domain. */
export function firstLabel(name: string | undefined): string | undefined {
  return name?.split('.')[0]?.slice(0, 255) || undefined;
}

/** Converts `HH:MM:SS`, `MM:SS` or a number to seconds; undefined for any other text. */
export function secondsOf(text: string): number | undefined {
  if (!/^\d{1,9}(:\d{1,2}){0,2}(\.\d+)?$/.test(text)) return undefined;
  return text.split(':').reduce((sum, part) => sum * 60 + Number(part), 0);
}
