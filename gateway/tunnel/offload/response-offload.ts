import type { AttemptFailure } from '../../../shared/upstream/attempt.ts';
import type { OffloadableResponse } from './offloaded-stream.ts';

/** The result of an offer: the answer's first bytes and the number that names its rest, or how the answer ended before them. */
export type OffloadOffer =
  | { kind: 'offloaded'; number: number; first: Uint8Array }
  | { kind: 'empty' }
  | { kind: 'failed'; code: AttemptFailure };

/** A host that writes streamed answers to its clients itself gives each tunnel object one: see LOCAL_OFFLOADS in env.ts. */
export interface ResponseOffload {
  /** Waits for the answer's first data, then `tell`s. */
  offer(held: OffloadableResponse, tell: (offer: OffloadOffer) => void): void;
  /** The answer of that attempt is being offloaded, or about to be. */
  holds(name: string): boolean;
  /** The client left before it took the answer. */
  leave(name: string): void;
  /** The answer is needed here after all, behind its first data. Undefined: it is gone. */
  takeBack(name: string): OffloadableResponse | undefined;
}
