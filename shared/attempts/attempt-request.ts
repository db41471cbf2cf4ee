/** One attempt of a request, from the caller's side: its inputs and its possible results. */
import type { NodeLoad } from '../routing/node-load.ts';
import type { ResetCode } from '../wire/frames.ts';
import type { HeaderList } from '../wire/header-codec.ts';
import type { TokenBound } from './token-bound.ts';

/** Plain data: a gateway's Worker passes it to a Durable Object as JSON. */
export interface AttemptRequest {
  requestId: string;
  attempt: number;
  /**
   * True if the node accepted the attempt before. Then this only claims the attempt: a node that does not know it
   * starts nothing.
   */
  resume: boolean;
  answerOffset: number;
  endpoint: number;
  /** Model name to request from the node, if the caller compares nodes. */
  model?: string;
  headers: HeaderList;
  edits: { at: number; remove: number; insert: string }[];
  streaming: boolean;
  dropUsage: boolean;
  /** Time limits of the engine in milliseconds; 0: no limit. */
  firstByteMs: number;
  stallMs: number;
  receipt: string;
  /** Proves that the caller opened the attempt. It is sent in front of the receipt, and is not recorded. */
  proof?: string;
  /** Upper bound of the attempt's token usage. Absent: the caller trusts the node's report. */
  bound?: TokenBound;
  /** True if the caller wants the digests of the prompt's prefix blocks. */
  prefixes?: boolean;
  /** Number of the node's GPUs according to its registry entry; absent: unknown. */
  gpus?: number;
  /** True if the host may write the rest of the answer directly to the client's socket. */
  offload?: boolean;
  /** Time limit in milliseconds for the node to acknowledge the opening. */
  acceptMs: number;
  /** Milliseconds that the request has waited so far, in queues and for earlier attempts. */
  waitedMs?: number;
  /** True if another node can take the whole request, even after this node's engine has received all of it. */
  movable?: boolean;
  /** True if another node can continue the stream after a break. */
  continues?: boolean;
  /** True if the previous node's engine hung on this request. */
  moved?: boolean;
  /** Length of a streaming body, if the client sent it. */
  bodyLength: number | undefined;
}

/** Unique name of an attempt: the request's name and the attempt's number. */
export function attemptName({ requestId, attempt }: Pick<AttemptRequest, 'requestId' | 'attempt'>): string {
  return `${requestId}/${attempt}`;
}

/** The request's body: complete, or a stream. */
export type AttemptBody = Uint8Array | ReadableStream<Uint8Array> | null;

export interface AttemptHead {
  headers: HeaderList;
  /**
   * `forwardMs`: milliseconds to the node and back. `engineMs`: milliseconds from the start of the node's request to
   * the engine until its response head.
   */
  forwardMs: number;
  engineMs: number;
  /** The node's last report about its engine. */
  load?: NodeLoad;
}

/** Reasons why an attempt fails before the engine's whole answer has arrived. */
export type AttemptFailure =
  | ResetCode
  /** This caller had no socket to the node. The node may be healthy. */
  | 'unreachable'
  /** The agent has no socket, or did not acknowledge the opening in time. */
  | 'not_accepted'
  /**
   * The engine accepted requests but answers none, while other nodes' engines answer. The request moves to another
   * node.
   */
  | 'hung'
  /** The engine may hang, and another request is already probing it. */
  | 'suspected'
  /** The agent was killed, which ended its session. */
  | 'gone'
  /** The socket was lost after the opening was acknowledged, and the stream was not resumed. */
  | 'lost';

/**
 * The result of an attempt, on every path from the node to the pipeline (docs/design/request-pipeline.md, "Answers"):
 *
 * - `whole`: the complete answer.
 * - `stream`: the body follows. `open` returns its stream, which is created on demand for one reader. `length`: number
 * of bytes, if the sender has all of them.
 * - `offloaded`: the first data. `rest` is the number under which the host finds the rest, which it can write to the
 * client.
 * - `fetch`: the answer did not arrive soon, so the caller must fetch it.
 * - `failure`: there is no answer.
 */
export type AttemptResult =
  | { kind: 'whole'; status: number; head: AttemptHead; bytes: Uint8Array }
  | { kind: 'stream'; status: number; head: AttemptHead; length?: number; open(): ReadableStream<Uint8Array> }
  | { kind: 'offloaded'; status: number; head: AttemptHead; first: Uint8Array; rest: number }
  | { kind: 'fetch' }
  | { kind: 'failure'; code: AttemptFailure; message: string };

export type ResultOf<K extends AttemptResult['kind']> = Extract<AttemptResult, { kind: K }>;
