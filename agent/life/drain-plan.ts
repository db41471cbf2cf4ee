/**
 * Computes how long a drain waits for running requests, and how long the engine has to end, by the cause of the end.
 * Pure.
 */

export type DrainCause =
  /** SIGTERM, SIGINT or SIGHUP. A SIGKILL follows soon. */
  | 'signal'
  /** SIGUSR1: Slurm's warning (`--signal=B:USR1@120`). The job continues for a while. */
  | 'warning'
  /** The job's time is nearly over. */
  | 'job-end'
  /** `otela-agent drain`. */
  | 'request';

export interface DrainPlan {
  /** Maximum wait for running requests. */
  drainMs: number;
  /** Milliseconds from SIGTERM to SIGKILL of the engine. */
  graceMs: number;
}

interface DrainFacts {
  cause: DrainCause;
  /** `--drain-timeout`. */
  timeoutMs: number | undefined;
  /** Slurm's KillWait; undefined outside a job. */
  killWaitMs: number | undefined;
  /** Milliseconds until the job's end; undefined if unknown. */
  leftMs: number | undefined;
}

/** Kubernetes (terminationGracePeriodSeconds) and Slurm (KillWait) by default send SIGKILL 30 s after SIGTERM. */
const KILL_AFTER_MS = 30_000;

/** The part of the time from SIGTERM to SIGKILL that is reserved to publish LEFT and to end the engine. */
const LEAVE_MS = 3000;

/** Maximum duration of a drain, if nothing else limits it. Long generations take minutes. */
const DRAIN_DEFAULT_MAX_MS = 600_000;

/** Reserved before the job's end: slurmctld's clock may be ahead of ours by this much. */
const JOB_END_MARGIN_MS = 10_000;

/** Default time from SIGTERM to SIGKILL. vLLM and SGLang end within a few seconds of SIGTERM. */
const GRACE_MS = 10_000;

export function drainPlan({ cause, timeoutMs, killWaitMs, leftMs }: DrainFacts): DrainPlan {
  if (cause === 'signal') {
    const killAfter = killWaitMs ?? KILL_AFTER_MS;
    const drainMs = timeoutMs ?? Math.max(0, killAfter - LEAVE_MS);
    return { drainMs, graceMs: Math.min(GRACE_MS, Math.max(1000, killAfter - LEAVE_MS)) };
  }
  const until = leftMs === undefined ? DRAIN_DEFAULT_MAX_MS : Math.max(0, leftMs - JOB_END_MARGIN_MS);
  return { drainMs: Math.min(timeoutMs ?? DRAIN_DEFAULT_MAX_MS, until), graceMs: GRACE_MS };
}

/**
 * Share of the job's time in which the node drains. It is small, so that even a test job of one minute serves for most
 * of that minute.
 */
const DRAIN_BEFORE_SHARE = 0.1;
const DRAIN_BEFORE_MS = 60_000;

/**
 * Milliseconds before the job's end at which draining begins.
 * @param leftMs time that was left when the agent started
 */
export function drainBefore(configuredMs: number | undefined, leftMs: number): number {
  return configuredMs ?? Math.min(DRAIN_BEFORE_MS, Math.max(0, leftMs) * DRAIN_BEFORE_SHARE);
}

/**
 * AT_LIMIT_MS: a signal counts as caused by the time limit if it arrives at most this long before the job's end, or
 * after it. Slurm kills a job within a minute of its limit by Slurm's own clock, and `OverTimeLimit` may allow more
 * time. WARNED_MS is the same for a warning, which arrives earlier.
 */
const AT_LIMIT_MS = 60_000;
const WARNED_MS = 900_000;

/**
 * Why a node ends, as the registry's history shows it: `drain`, `time-limit`, or the signal's name. A signal while the
 * job still has time comes from scancel, a preemption or a shutdown.
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
