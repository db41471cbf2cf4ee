/** How long running requests are waited for, and how long the engine has to end, by what asked for the end. Pure. */

export type DrainCause =
  /** SIGTERM, SIGINT, SIGHUP: a SIGKILL follows soon. */
  | 'signal'
  /** SIGUSR1: Slurm's warning (`--signal=B:USR1@120`), the job goes on for a while. */
  | 'warning'
  /** The job's time is nearly up. */
  | 'job-end'
  /** `otela-agent drain`. */
  | 'request';

export interface DrainPlan {
  /** Longest wait for running requests. */
  drainMs: number;
  /** From SIGTERM to SIGKILL for the engine. */
  graceMs: number;
}

interface DrainFacts {
  cause: DrainCause;
  /** `--drain-timeout`. */
  timeoutMs: number | undefined;
  /** Slurm's KillWait; undefined outside a job. */
  killWaitMs: number | undefined;
  /** Until the job's end, where it is known. */
  leftMs: number | undefined;
}

/** Kubernetes kills 30 s after SIGTERM by default (terminationGracePeriodSeconds), Slurm too (KillWait). */
const KILL_AFTER_MS = 30_000;

/** Kept of that time to publish LEFT and to end the engine. */
const FAREWELL_MS = 3000;

/** Waited for where nothing limits it: long generations take minutes. */
const UNHURRIED_MS = 600_000;

/** Kept before the job's end; slurmctld may be this early by our clock. */
const JOB_END_MARGIN_MS = 10_000;

/** vLLM and SGLang end within a few seconds of SIGTERM. */
const GRACE_MS = 10_000;

export function drainPlan({ cause, timeoutMs, killWaitMs, leftMs }: DrainFacts): DrainPlan {
  if (cause === 'signal') {
    const killAfter = killWaitMs ?? KILL_AFTER_MS;
    const drainMs = timeoutMs ?? Math.max(0, killAfter - FAREWELL_MS);
    return { drainMs, graceMs: Math.min(GRACE_MS, Math.max(1000, killAfter - FAREWELL_MS)) };
  }
  const until = leftMs === undefined ? UNHURRIED_MS : Math.max(0, leftMs - JOB_END_MARGIN_MS);
  return { drainMs: Math.min(timeoutMs ?? UNHURRIED_MS, until), graceMs: GRACE_MS };
}

/** A tenth of a short job, so that a test of one minute serves for most of it. */
const DRAIN_BEFORE_SHARE = 0.1;
const DRAIN_BEFORE_MS = 60_000;

/** How long before the job's end draining begins; `leftMs` is what was left when the agent started. */
export function drainBefore(configuredMs: number | undefined, leftMs: number): number {
  return configuredMs ?? Math.min(DRAIN_BEFORE_MS, Math.max(0, leftMs) * DRAIN_BEFORE_SHARE);
}

/** Slurm kills a job within a minute of its limit (its own clock, `OverTimeLimit` aside); a warning may come long before. */
const AT_LIMIT_MS = 60_000;
const WARNED_MS = 900_000;

/**
 * Why a node goes, as the registry's history tells it: `drain`, `time-limit`, or the signal's name, which is scancel's, preemption's or a
 * shutdown's where the job still had time.
 */
export function drainReason(cause: DrainCause, signal: string, leftMs: number | undefined): string {
  switch (cause) {
    case 'request':
      return 'drain';
    case 'job-end':
      return 'time-limit';
    case 'signal':
      return leftMs !== undefined && leftMs <= AT_LIMIT_MS ? 'time-limit' : signal;
    case 'warning':
      return leftMs !== undefined && leftMs <= WARNED_MS ? 'time-limit' : signal;
  }
}
