import type { ResultOf } from '../../../shared/attempts/attempt-request.ts';
import type { OutboundAttempt } from '../../../shared/attempts/outbound-attempt.ts';

/** A response whose head has arrived. */
export interface OffloadableResponse {
  upstream: OutboundAttempt;
  answer: ResultOf<'stream'>;
}

/**
 * If a host writes streaming responses to its clients itself, it gives each tunnel object one of these: see
 * LOCAL_OFFLOADS in env.ts.
 */
export interface ResponseOffload {
  /** Waits for the first data of the response, then calls `tell`: `offloaded`, or how the response ended before it. */
  offer(response: OffloadableResponse, tell: (result: ResultOf<'offloaded' | 'whole' | 'failure'>) => void): void;
  /** True if the response of that attempt is offloaded, or about to be. */
  holds(name: string): boolean;
  /** The client disconnected before it took the response. */
  leave(name: string): void;
  /** Returns the response if it is needed here after all, from after its first data. Undefined: it is gone. */
  takeBack(name: string): OffloadableResponse | undefined;
}
