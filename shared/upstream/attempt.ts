/** One attempt at a request as its asker sees it: what opens it, what may come of it. */
import type { NodeLoad } from '../routing/load.ts';
import type { ResetCode } from '../wire/frames.ts';
import type { HeaderList } from '../wire/headers.ts';
import type { TokenBound } from './token-bound.ts';

/** Plain data: a gateway's Worker hands it to a Durable Object as JSON. */
export interface AttemptRequest {
  requestId: string;
  attempt: number;
  /** Claim only: this attempt was accepted before. */
  resume: boolean;
  answerOffset: number;
  endpoint: number;
  /** What the node is asked for, where its asker compares nodes. */
  model?: string;
  headers: HeaderList;
  edits: { at: number; remove: number; insert: string }[];
  streaming: boolean;
  dropUsage: boolean;
  /** 0: no limit. */
  firstByteMs: number;
  stallMs: number;
  receipt: string;
  /** That the asker opened it: sent in front of the receipt, and of no record. */
  proof?: string;
  /** What it can have used at most; absent: its asker believes the node. */
  bound?: TokenBound;
  /** Its prompt's prefix blocks are wanted. */
  prefixes?: boolean;
  /** GPUs of the node, as its registry entry says; absent: not told. */
  gpus?: number;
  /** Its answer may be offloaded. */
  offload?: boolean;
  /** How long the opening may stay without acknowledgement. */
  acceptMs: number;
  /** How long the request has waited: in queues, and for attempts before this one. */
  waitedMs?: number;
  /** Another node can have all of it instead, also once this one's engine has it. */
  movable?: boolean;
  /** Its stream goes on at another node where it breaks off. */
  continues?: boolean;
  /** It hung at the node that was asked before. */
  moved?: boolean;
  /** Of a body that streams, where the client said so. */
  bodyLength: number | undefined;
}

/** Of an attempt; unique. */
export function attemptName({ requestId, attempt }: Pick<AttemptRequest, 'requestId' | 'attempt'>): string {
  return `${requestId}/${attempt}`;
}

/** The request's body: whole, or as it comes. */
export type AttemptBody = Uint8Array | ReadableStream<Uint8Array> | null;

export interface AttemptHead {
  headers: HeaderList;
  /** Hand-over to acknowledgement, and the engine's own time to its head. */
  forwardMs: number;
  engineMs: number;
  /** What the node last said of its engine. */
  load?: NodeLoad;
}

/** Why an attempt failed on its way. */
export type AttemptFailure =
  | ResetCode
  /** No socket to the node could be had from here; it may be well. */
  | 'unreachable'
  /** The agent did not acknowledge the opening in time, or has no socket. */
  | 'not_accepted'
  /** The engine took it and answers no request, while others answer: it is asked of another node. */
  | 'hung'
  /** Its engine is taken to hang, and another request tries it just now. */
  | 'suspected'
  /** The agent was killed: its session is over. */
  | 'gone'
  /** The socket went away after the opening was acknowledged, and the stream was not resumed. */
  | 'lost';

/** What came of an attempt. With `head` the engine answers: at once and in full (`whole`), or as a stream that follows. */
export type AttemptResult =
  | { kind: 'head'; status: number; head: AttemptHead; whole: Uint8Array | undefined }
  | { kind: 'failure'; code: AttemptFailure; message: string };

export type WholeResult =
  | { kind: 'head'; status: number; head: AttemptHead; whole: Uint8Array }
  | { kind: 'failure'; code: AttemptFailure; message: string };
