import type { AttemptFailure } from '../attempt.ts';
import type { Held } from './offloaded-stream.ts';

/** What came of offering an answer: its first bytes, and the number that the rest goes by; or how it ended before that. */
export type Offer =
  | { kind: 'offloaded'; number: number; first: Uint8Array }
  | { kind: 'empty' }
  | { kind: 'failed'; code: AttemptFailure };

/** A host that writes streamed answers to its clients itself gives each tunnel object one: see LOCAL_OFFLOADS in env.ts. */
export interface ResponseOffload {
  /** Waits for the answer's first data, then `tell`s. */
  offer(held: Held, tell: (offer: Offer) => void): void;
  /** The answer of that attempt is being offloaded, or about to be. */
  holds(name: string): boolean;
  /** Its client left before it could be taken. */
  leave(name: string): void;
  /** The answer is needed here after all, behind its first data. Undefined: it is gone. */
  takeBack(name: string): Held | undefined;
}
