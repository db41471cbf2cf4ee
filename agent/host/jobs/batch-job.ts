/** The batch job that an agent lives in, whatever system runs it: its name, when it ends, and what is being done to it. */
import type { RunTool } from '../run-tool.ts';

export type Env = Readonly<Record<string, string | undefined>>;

/** `ends: undefined` is a job without a limit; `unknown` is no news: what was known before still holds. */
export type EndTime = { kind: 'known'; ends: Date | undefined } | { kind: 'unknown'; reason: string };

/** What ends a job, as the registry writes it: see shared/lattice/departure.ts. */
export type JobFate = 'cancelled' | 'time-limit' | 'preempted' | 'out-of-memory' | 'node-failure';

export interface BatchJob {
  /** As people call the system. */
  system: string;
  /** As the system prints it. */
  id: string;
  /** The system's name of this machine. */
  node: string | undefined;
  /** Or queue. */
  partition: string | undefined;
  /** As the environment tells it, which stays what it was at the job's start. */
  ends: Date | undefined;
  /** Absent: this system cannot be asked. */
  askEnd?(run: RunTool): Promise<EndTime>;
  /** Undefined: nothing ends the job, or the system does not tell. */
  askFate(run: RunTool): Promise<JobFate | undefined>;
  /** When the job ends, where the system says that it runs on until then although a SIGTERM came. Absent: this system cannot tell. */
  askRunsUntil?(run: RunTool): Promise<Date | undefined>;
  /** Time between SIGTERM and SIGKILL; undefined: it cannot be learnt. */
  killWaitMs(run: RunTool): Promise<number | undefined>;
}

/** A machine's name without its domain. */
export function firstLabel(name: string | undefined): string | undefined {
  return name?.split('.')[0]?.slice(0, 255) || undefined;
}

/** Of `HH:MM:SS`, `MM:SS` or seconds; undefined for anything else. */
export function secondsOf(text: string): number | undefined {
  if (!/^\d{1,9}(:\d{1,2}){0,2}(\.\d+)?$/.test(text)) return undefined;
  return text.split(':').reduce((sum, part) => sum * 60 + Number(part), 0);
}
