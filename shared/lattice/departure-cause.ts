/** Why a node left: a small set of causes, so that lists, metrics and logs can count departures by cause. */

export const DEPARTURE_CAUSES = [
  /** An operator, a deployment order, a new session or a new version made the node leave. */
  'drained',
  /** The session's batch job was cancelled. */
  'cancelled',
  /** The session's batch job reached its time limit. */
  'time-limit',
  /** The session's batch job was preempted by another job. */
  'preempted',
  /** The engine ended or failed, the agent was killed or failed, or the machine failed. */
  'crashed',
  /** A signal ended the agent, and no batch system reported the cause. */
  'stopped',
  /** An operator ended the session, or revoked its admission. */
  'evicted',
  /** The session became silent: the network or the machine failed, or the agent was killed without notice. */
  'unknown',
] as const;
export type DepartureCause = (typeof DEPARTURE_CAUSES)[number];

/**
 * Signals that end an agent. Grid Engine (`-notify`) and LSF (at its run limit) send SIGUSR2 before the end; Flux sends
 * SIGALRM at its time limit.
 */
export const TERMINATION_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1', 'SIGUSR2', 'SIGALRM'] as const;
export type TerminationSignal = (typeof TERMINATION_SIGNALS)[number];

const STOPPED = {
  SIGTERM: 'stopped',
  SIGINT: 'stopped',
  SIGHUP: 'stopped',
  SIGUSR1: 'stopped',
  SIGUSR2: 'stopped',
  SIGALRM: 'stopped',
} as const satisfies Record<TerminationSignal, DepartureCause>;

/** Causes by the reason text that agents and gateways write. Any other text is the cause `unknown`. */
const CAUSES: Readonly<Record<string, DepartureCause>> = {
  drain: 'drained',
  'new-session': 'drained',
  cancelled: 'cancelled',
  'time-limit': 'time-limit',
  preempted: 'preempted',
  'engine-ended': 'crashed',
  'engine-broken': 'crashed',
  'out-of-memory': 'crashed',
  'node-failure': 'crashed',
  killed: 'crashed',
  'agent-fault': 'crashed',
  ...STOPPED,
  operator: 'evicted',
  'token-revoked': 'evicted',
  'issuer-removed': 'evicted',
};

export function departureCause(reason: string | null | undefined): DepartureCause {
  return reason != null && Object.hasOwn(CAUSES, reason) ? (CAUSES[reason] ?? 'unknown') : 'unknown';
}
