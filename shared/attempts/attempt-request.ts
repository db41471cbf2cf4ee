/** One attempt at a request, from the caller's side: its inputs and its possible results. */
import type { NodeLoad } from '../routing/node-load.ts';
import type { ResetCode } from '../wire/frames.ts';
import type { HeaderList } from '../wire/header-codec.ts';
import type { TokenBound } from './token-bound.ts';

/** Plain data: a gateway's Worker passes it to a Durable Object as JSON. */
export interface AttemptRequest {
  requestId: string;
  attempt: number;
  /** Claim only: this attempt was accepted before. */
  resume: boolean;
  answerOffset: number;
  endpoint: number;
  /** The model that the node is asked for, if the caller compares nodes. */
  model?: string;
  headers: HeaderList;
  edits: { at: number; remove: number; insert: string }[];
  streaming: boolean;
  dropUsage: boolean;
  /** 0: no limit. */
  firstByteMs: number;
  stallMs: number;
  receipt: string;
  /** Proves that the caller opened the attempt: sent in front of the receipt, and not recorded. */
  proof?: string;
  /** Upper bound of its token usage; absent: the caller trusts the node's report. */
  bound?: TokenBound;
  /** The caller wants the prefix blocks of the prompt. */
  prefixes?: boolean;
  /** Number of GPUs of the node by its registry entry; absent: unknown. */
  gpus?: number;
  /** The answer may be offloaded. */
  offload?: boolean;
  /** Time limit for the acknowledgment of the opening. */
  acceptMs: number;
  /** How long the request has waited so far, in queues and for earlier attempts. */
  waitedMs?: number;
  /** Another node can take the whole request, even after this node's engine received it. */
  movable?: boolean;
  /** If the stream breaks, another node continues it. */
  continues?: boolean;
  /** An engine at the previous node hung on it. */
  moved?: boolean;
  /** For a streaming body, if the client sent its length. */
  bodyLength: number | undefined;
}

/** Unique name of an attempt. */
export function attemptName({ requestId, attempt }: Pick<AttemptRequest, 'requestId' | 'attempt'>): string {
  return `${requestId}/${attempt}`;
}

/** The request's body: complete, or as a stream. */
export type AttemptBody = Uint8Array | ReadableStream<Uint8Array> | null;

export interface AttemptHead {
  headers: HeaderList;
  /** Time from the hand-over to the acknowledgment, and from there to the engine's response head. */
  forwardMs: number;
  engineMs: number;
  /** The node's last report about its engine. */
  load?: NodeLoad;
}

/** Why an attempt failed on its way. */
export type AttemptFailure =
  | ResetCode
  /** No socket to the node was available here. The node may be healthy. */
  | 'unreachable'
  /** The agent did not acknowledge the opening in time, or has no socket. */
  | 'not_accepted'
  /** The engine accepted the request and answers none while others answer. The request moves to another node. */
  | 'hung'
  /** The engine is suspected of hanging, and another request is probing it. */
  | 'suspected'
  /** The agent was killed, so its session ended. */
  | 'gone'
  /** The socket was lost after the opening was acknowledged, and the stream was not resumed. */
  | 'lost';

/**
 * The result of an attempt, on every way from the node to the pipeline (docs/design/request-pipeline.md, "Answers"):
 *
 * - `whole`: the complete answer.
 * - `stream`: the body follows. `open` returns its stream, created on demand for one reader. `length`: number of bytes, if
 *   the sender has all of them.
 * - `offloaded`: the first data. The host can write the rest to the client, if it gets the number `rest`.
 * - `fetch`: the answer is not here soon; the caller must fetch it.
 * - `failure`: there is no answer.
 */
export type AttemptResult =
  | { kind: 'whole'; status: number; head: AttemptHead; bytes: Uint8Array }
  | { kind: 'stream'; status: number; head: AttemptHead; length?: number; open(): ReadableStream<Uint8Array> }
  | { kind: 'offloaded'; status: number; head: AttemptHead; first: Uint8Array; rest: number }
  | { kind: 'fetch' }
  | { kind: 'failure'; code: AttemptFailure; message: string };

export type ResultOf<K extends AttemptResult['kind']> = Extract<AttemptResult, { kind: K }>;
