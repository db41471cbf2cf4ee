import type { AttemptFailure } from '../../../shared/upstream/attempt.ts';
import type { OffloadableResponse } from './offloaded-stream.ts';

/**
 * The result of an offer: the first bytes of the response and the number that names its rest, or how the response ended
 * before them.
 */
export type OffloadOffer =
  | { kind: 'offloaded'; number: number; first: Uint8Array }
  | { kind: 'empty' }
  | { kind: 'failed'; code: AttemptFailure };

/**
 * If a host writes streaming responses to its clients itself, it gives each tunnel object one of these: see
 * LOCAL_OFFLOADS in env.ts.
 */
export interface ResponseOffload {
  /** Waits for the first data of the response, then calls `tell`. */
  offer(held: OffloadableResponse, tell: (offer: OffloadOffer) => void): void;
  /** True if the response of that attempt is offloaded, or about to be. */
  holds(name: string): boolean;
  /** The client disconnected before it took the response. */
  leave(name: string): void;
  /** Returns the response if it is needed here after all, from after its first data. Undefined: it is gone. */
  takeBack(name: string): OffloadableResponse | undefined;
}
