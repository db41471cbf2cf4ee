import type { ResultOf } from '../../../shared/attempts/attempt-request.ts';
import type { OutboundAttempt } from '../../../shared/attempts/outbound-attempt.ts';

/** A response whose head has arrived. */
export interface OffloadableResponse {
  attempt: OutboundAttempt;
  answer: ResultOf<'stream'>;
}

/**
 * A tunnel object's access to a host that writes streaming responses to its clients itself: see LOCAL_OFFLOADS in
 * env.ts.
 */
export interface ResponseOffload {
  /**
   * Waits for the first data of the response, then calls `onResult` with `offloaded`, or with how the response ended
   * before any data.
   */
  offer(response: OffloadableResponse, onResult: (result: ResultOf<'offloaded' | 'whole' | 'failure'>) => void): void;
  /** True if the response of that attempt is offloaded, or about to be. */
  holds(name: string): boolean;
  /** Called if the client disconnected before it took the response. */
  leave(name: string): void;
  /**
   * Returns the response, after its first data, if it must be read in another way after all. Undefined: it no longer
   * exists.
   */
  takeBack(name: string): OffloadableResponse | undefined;
}
