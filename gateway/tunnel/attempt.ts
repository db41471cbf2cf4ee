/** How the Worker asks a session's object for one attempt, and how the object answers. Both are this program: no parsing twice. */

import type { ResetCode } from '../../shared/wire/frames.ts';
import type { HeaderList } from '../../shared/wire/headers.ts';

/** In the header `x-otela-open` of the Worker's request. */
export interface AttemptRequest {
  requestId: string;
  attempt: number;
  /** Claim only: this attempt was accepted before. */
  resume: boolean;
  answerOffset: number;
  endpoint: number;
  headers: HeaderList;
  edits: { at: number; remove: number; insert: string }[];
  streaming: boolean;
  dropUsage: boolean;
  /** 0: no limit. */
  firstByteMs: number;
  stallMs: number;
  receipt: string;
  /** How long the opening may stay without acknowledgement. */
  acceptMs: number;
  /** Of a body that streams, where the client said so. */
  bodyLength: number | undefined;
}

/** The request's body: whole, or as it comes. */
export type AttemptBody = Uint8Array | ReadableStream<Uint8Array> | null;

/** In the header `x-otela-head` of an answer that came from the engine. */
export interface AttemptHead {
  headers: HeaderList;
  /** Hand-over to acknowledgement, and the engine's own time to its head. */
  forwardMs: number;
  engineMs: number;
}

/** In the header `x-otela-failure` of an answer that did not: why the attempt failed on its way. */
export type AttemptFailure =
  | ResetCode
  /** The agent did not acknowledge the opening in time, or has no socket. */
  | 'not_accepted'
  /** The socket went away after the opening was acknowledged and nobody resumed it. */
  | 'lost';

/** What came of an attempt. With `head` the engine answers: at once and in full (`whole`), or as a stream that follows. */
export type AttemptResult =
  | { kind: 'head'; status: number; head: AttemptHead; whole: Uint8Array | undefined }
  | { kind: 'failure'; code: AttemptFailure; message: string };

export type WholeResult =
  | { kind: 'head'; status: number; head: AttemptHead; whole: Uint8Array }
  | { kind: 'failure'; code: AttemptFailure; message: string };

/** What a call for an attempt gives: the answer if it came soon and whole; else it is to be fetched. */
export type CallResult = WholeResult | { kind: 'fetch' };

/** Statuses that cannot carry a body (RFC 9110 §6.4.1). */
export const NO_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

export const OPEN_HEADER = 'x-otela-open';
export const HEAD_HEADER = 'x-otela-head';
export const FAILURE_HEADER = 'x-otela-failure';
