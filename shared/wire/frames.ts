/**
 * Frames of the tunnel: what each carries, and its number. A message is a sequence of frames, which frame-codec.ts spells;
 * docs/protocol.md has the same tables for readers. `stream` numbers are given by the opener and never repeat within a session.
 */
import type { HeaderList } from './headers.ts';
import type { ReportedTimings, ReportedUsage } from './usage.ts';

/** Why a stream ended without END. The number is the protocol; append only. */
export const RESET_CODES = [
  'cancelled', // the other side does not want the answer any more
  'refused', // not serving: joining, draining or leaving
  'unknown', // no such stream here (any more)
  'engine_unreachable', // the engine did not take the connection
  'engine_closed', // the engine ended inside its answer or before its head
  'first_byte_timeout',
  'stall_timeout',
  'overloaded',
  'failed', // a fault of this end
  'seal_refused', // a sealed request that this node does not open; the cause is told to nobody
] as const;
export type ResetCode = (typeof RESET_CODES)[number];

/** Where bytes of the request body are replaced on their way to the engine; offsets count in the body as sent. */
export interface BodyEdit {
  at: number;
  remove: number;
  insert: Uint8Array;
}

/** Opens a stream, or claims one that its former object or socket left behind. */
export interface OpenFrame {
  type: 'open';
  stream: number;
  /** Claim only: where it is unknown, answer RESET unknown and start nothing. */
  resume: boolean;
  /** With `attempt` the name of the stream, valid across sockets and objects. */
  requestId: string;
  attempt: number;
  /** The answer is wanted from this byte on. */
  answerOffset: number;
  /** Row of shared/openai/endpoints. */
  endpoint: number;
  headers: HeaderList;
  edits: BodyEdit[];
  /** The answer is a stream of events; its usage event is dropped where an edit asked for it. */
  streaming: boolean;
  dropUsage: boolean;
  /** 0: no limit. */
  firstByteMs: number;
  stallMs: number;
  /** Opaque to the agent; comes back in a REPORT that outlived its object. */
  receipt: string;
  /** The gateway wants PREFIXES of the prompt. */
  prefixes?: boolean;
  /** Of the request's body as sent; undefined: not known before its end. */
  bodyLength: number | undefined;
}

export type Frame =
  | OpenFrame
  /** The opening arrived; `bodyOffset` bytes of the request are already here, all of it where `bodyDone`. */
  | { type: 'accept'; stream: number; bodyOffset: number; bodyDone: boolean }
  /** `engineTenths`: the engine's own time to its head, in tenths of a millisecond. */
  | { type: 'head'; stream: number; status: number; engineTenths: number; headers: HeaderList }
  | { type: 'data'; stream: number; offset: number; bytes: Uint8Array }
  /** The body is complete and `offset` bytes long. */
  | { type: 'end'; stream: number; offset: number }
  | { type: 'reset'; stream: number; code: ResetCode; message: string }
  /** `consumed` bytes went on to the next hop, `window` more may follow them. Stream 0: the socket. */
  | { type: 'credit'; stream: number; consumed: number; window: number }
  /**
   * What the engine counted; `name` only where the stream's object may be gone. `timings` only beside a name, and only to a peer that reads
   * TIMED_REPORT: the other peers saw for themselves how the attempt went.
   */
  | { type: 'report'; stream: number; usage: ReportedUsage; name?: ReportName; timings?: ReportedTimings }
  /** The reports of these streams are stored; forget them. */
  | { type: 'settled'; streams: number[] }
  /** An encoded update of the lattice, opaque here: what the session says of itself. */
  | { type: 'record'; sequence: number; update: Uint8Array }
  | { type: 'recorded'; sequence: number }
  | { type: 'challenge'; nonce: Uint8Array }
  | { type: 'hello'; publicKey: Uint8Array; signature: Uint8Array; generation: number; window: number }
  /** `gateway`: its name as a gossip peer. */
  | { type: 'welcome'; window: number; gateway: string }
  /** A message of shared/gossip, opaque here. */
  | { type: 'gossip'; bytes: Uint8Array }
  /** From an agent: ask that session whether it is there. From a gateway, with the agent's own session: are you? */
  | { type: 'probe'; nonce: number; session: string }
  | { type: 'probed'; nonce: number; verdict: ProbeVerdict }
  /** What this agent's ingress used: see shared/usage/ingress-usage. */
  | { type: 'usage'; sequence: number; json: string }
  /** The records of that frame are stored. */
  | { type: 'stored'; sequence: number }
  /** How busy this node's engine is; `kvUse` 0..1. */
  | { type: 'load'; running: number; waiting: number; kvUse?: number }
  /** What the engine writes; stands before the LOAD that it belongs to. Only to who reads it: see FRAMES_HEADER. */
  | { type: 'rate'; tokensPerSecond: number }
  /** An order of shared/deployment; empty: what is there, and what would be taken? */
  | { type: 'deploy'; sequence: number; order: Uint8Array }
  /** The answer, JSON: see shared/deployment/answer. */
  | { type: 'deployed'; sequence: number; json: string }
  /** SHA-256 of each full block of 16 token ids of the prompt that came as stream `of`, one after the other; empty: no tokenizer. */
  | { type: 'prefixes'; of: number; blocks: Uint8Array }
  /** An agent without a way to this one waits at `/agent/circuit/NAME`. Only to who reads it: see FRAMES_HEADER. */
  | { type: 'circuit'; name: string };

/** What a probe found; `unknown`: it could not be made, which proves nothing. The number is the protocol. */
export const PROBE_VERDICTS = ['alive', 'silent', 'unknown'] as const;
export type ProbeVerdict = (typeof PROBE_VERDICTS)[number];

export interface ReportName {
  requestId: string;
  attempt: number;
  receipt: string;
}

/** In the order of their numbers. */
export const TYPES = [
  'open',
  'accept',
  'head',
  'data',
  'end',
  'reset',
  'credit',
  'report',
  'settled',
  'record',
  'recorded',
  'challenge',
  'hello',
  'welcome',
  'gossip',
  undefined, // 15 and 16 were never used; their numbers are not given again
  undefined,
  'probe',
  'probed',
  'usage',
  'stored',
  'load',
  'deploy',
  'deployed',
  'prefixes',
  'rate',
  'report', // 26: with timings. 7 is written where there are none
  'circuit',
] as const satisfies readonly (Frame['type'] | undefined)[];

/** Frames of no stream. */
export const CONNECTION: ReadonlySet<Frame['type']> = new Set([
  'settled',
  'record',
  'recorded',
  'challenge',
  'hello',
  'welcome',
  'gossip',
  'probe',
  'probed',
  'usage',
  'stored',
  'load',
  'deploy',
  'deployed',
  'prefixes',
  'rate',
  'circuit',
]);
