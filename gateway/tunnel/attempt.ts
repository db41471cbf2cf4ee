/** How the Worker asks a session's object for one attempt, and how the object answers. Both are this program: no parsing twice. */
import type { WholeResult } from '../../shared/asking/attempt.ts';

export type {
  AttemptBody,
  AttemptFailure,
  AttemptHead,
  AttemptRequest,
  AttemptResult,
  WholeResult,
} from '../../shared/asking/attempt.ts';

/** What a call for an attempt gives: the answer if it came soon and whole; else it is to be fetched. */
export type CallResult = WholeResult | { kind: 'fetch' };

/** Statuses that cannot carry a body (RFC 9110 §6.4.1). */
export const NO_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

/** Of the Worker's request: the AttemptRequest. */
export const OPEN_HEADER = 'x-otela-open';
/** Of an answer that came from the engine: its AttemptHead. */
export const HEAD_HEADER = 'x-otela-head';
/** Of an answer that did not: its AttemptFailure. */
export const FAILURE_HEADER = 'x-otela-failure';

/** As `answerOffset` of a claim: nothing of it is wanted, only why it broke off. */
export const BROKEN_OFF = -1;
