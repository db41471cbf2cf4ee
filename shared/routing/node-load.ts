/** State of a node that is valid for seconds only. It is neither in the lattice nor in a store. */

/** What an engine reports about itself. */
export interface EngineLoad {
  /** Number of requests in the engine's batch. */
  running: number;
  /** Number of requests in the engine's queue. */
  waiting: number;
  /** Share of the KV cache in use, from 0 to 1. Absent if the engine does not report it. */
  kvUse?: number;
  /** Generated tokens per second. Absent if the engine does not report them, or has reported only once. */
  tokensPerSecond?: number;
}

/** The last report of a node's engine. */
export interface NodeLoad extends EngineLoad {
  /** Time of arrival by the receiver's clock, in milliseconds since 1970. */
  at: number;
  /** Number of requests that the gateway had open at the node when the report arrived. */
  open?: number;
}

/** A load older than this is stale. */
export const LOAD_KNOWN_MS = 5_000;

/** The last state of a node's circuit breaker. Times in milliseconds since 1970. */
export interface BreakerState {
  state: 'closed' | 'open';
  since: number;
  /** True if the engine hangs. Only the node's tunnel object decides when that is over. */
  hangs?: boolean;
  /** From this time on single requests probe the node (half-open). Not used if the breaker is closed. */
  until: number;
}

/** The breaker's state at `now`. An open breaker becomes half-open at `until`. */
export function breakerAt(breaker: BreakerState | undefined, now: number): 'closed' | 'open' | 'half-open' {
  if (breaker === undefined || breaker.state === 'closed') return 'closed';
  return now < breaker.until ? 'open' : 'half-open';
}

/** The live state that travels with the registry's snapshot, per session. */
export interface LiveState {
  load?: NodeLoad;
  breaker?: BreakerState;
}
