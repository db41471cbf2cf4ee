/** The batch job of an agent, for any batch system: its name, its end, and the cause of its end. */
/** Runs a program of the batch system, such as `squeue`. A failure is returned, not thrown. */
export type AskTool = (
  file: string,
  args: readonly string[],
  env?: Readonly<Record<string, string>>,
) => Promise<{ ok: true; stdout: string } | { ok: false; reason: string }>;

export type Env = Readonly<Record<string, string | undefined>>;

/** `ends: undefined`: the job has no limit. `unknown`: no new information, so the previous end still holds. */
export type EndTime = { kind: 'known'; ends: Date | undefined } | { kind: 'unknown'; reason: string };

/** What ends a job, as written in the registry; see shared/lattice/departure-cause.ts. */
export type JobFate = 'cancelled' | 'time-limit' | 'preempted' | 'out-of-memory' | 'node-failure';

export interface BatchJob {
  /** The system's common name. */
  system: string;
  /** As the system prints it. */
  id: string;
  /** The system's name of this machine. */
  node: string | undefined;
  /** Partition or queue. */
  partition: string | undefined;
  /** The end from the environment, which keeps its value from the job's start. */
  ends: Date | undefined;
  /** Absent: this system cannot be asked. */
  askEnd?(run: AskTool): Promise<EndTime>;
  /** Undefined: nothing ends the job, or the system does not report it. */
  askFate(run: AskTool): Promise<JobFate | undefined>;
  /**
   * The job's end, if the system reports that the job continues until then despite a SIGTERM. Absent: this system
   * cannot report it.
   */
  askRunsUntil?(run: AskTool): Promise<Date | undefined>;
  /** Time between SIGTERM and SIGKILL; undefined: it cannot be found out. */
  killWaitMs(run: AskTool): Promise<number | undefined>;
}

/** A machine's name without its domain. */
export function firstLabel(name: string | undefined): string | undefined {
  return name?.split('.')[0]?.slice(0, 255) || undefined;
}

/** Seconds of `HH:MM:SS`, `MM:SS` or a number; undefined for any other text. */
export function secondsOf(text: string): number | undefined {
  if (!/^\d{1,9}(:\d{1,2}){0,2}(\.\d+)?$/.test(text)) return undefined;
  return text.split(':').reduce((sum, part) => sum * 60 + Number(part), 0);
}
