/** What is known of a node for seconds only: it is in no lattice and in no store. */

/** What an engine says of itself. */
export interface EngineLoad {
  /** Requests in the engine's batch. */
  running: number;
  /** Requests in the engine's own queue. */
  waiting: number;
  /** Share of the KV cache in use, 0..1; absent where the engine does not tell. */
  kvUse?: number;
}

/** What a node's engine last said. */
export interface NodeLoad extends EngineLoad {
  /** When it came, by the clock of whoever received it; milliseconds since the epoch. */
  at: number;
}

/** Older than this a load says nothing any more. */
export const LOAD_KNOWN_MS = 5_000;

/** How a node's circuit breaker stands. */
export interface BreakerState {
  state: 'closed' | 'open' | 'half-open';
  /** Since when; milliseconds since the epoch. */
  since: number;
}

/** What travels beside the registry's snapshot, by session. */
export interface LiveState {
  load?: NodeLoad;
  breaker?: BreakerState;
}
