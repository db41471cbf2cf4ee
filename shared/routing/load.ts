/** What is known of a node for seconds only: it is in no lattice and in no store. */

/** What an engine says of itself. */
export interface EngineLoad {
  /** Requests in the engine's batch. */
  running: number;
  /** Requests in the engine's own queue. */
  waiting: number;
  /** Share of the KV cache in use, 0..1; absent where the engine does not tell. */
  kvUse?: number;
  /** Tokens that it writes per second; absent where it does not tell, and until it told twice. */
  tokensPerSecond?: number;
}

/** What a node's engine last said. */
export interface NodeLoad extends EngineLoad {
  /** When it came, by the receiver's clock; milliseconds since the epoch. */
  at: number;
  /** Requests that the gateway had open there then. */
  open?: number;
}

/** Older than this a load says nothing any more. */
export const LOAD_KNOWN_MS = 5_000;

/** What became of a node's circuit breaker last; times in milliseconds since the epoch. */
export interface BreakerState {
  state: 'closed' | 'open';
  since: number;
  /** Its engine hangs: its tunnel's object alone says when that is over. */
  hangs?: boolean;
  /** From then on single requests try whether it is well again (half-open); once closed it says nothing. */
  until: number;
}

/** How it stands now. */
export function breakerAt(breaker: BreakerState | undefined, now: number): 'closed' | 'open' | 'half-open' {
  if (breaker === undefined || breaker.state === 'closed') return 'closed';
  return now < breaker.until ? 'open' : 'half-open';
}

/** What travels beside the registry's snapshot, by session. */
export interface LiveState {
  load?: NodeLoad;
  breaker?: BreakerState;
}
