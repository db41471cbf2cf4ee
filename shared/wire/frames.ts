/**
 * Frames of the tunnel: what each carries, and its number. A message is a sequence of frames, which frame-codec.ts spells;
 * docs/protocol.md has the table of frames for readers. `stream` numbers are given by the opener and never repeat within a session.
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
  'seal_refused', // a sealed request that this node does not open; the cause is not told
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
  /** Only a claim: if the attempt is unknown, the agent answers RESET unknown and starts nothing. */
  resume: boolean;
  /** Together with `attempt` it names the attempt, across sockets and objects. */
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
  /** Opaque to the agent. It comes back in a REPORT if the stream's object is gone. */
  receipt: string;
  /** The gateway wants PREFIXES of the prompt. */
  prefixes?: boolean;
  /** Length of the request's body as sent. Undefined: not known before its end. */
  bodyLength: number | undefined;
}

export type Frame =
  | OpenFrame
  /** The opening arrived. `bodyOffset` bytes of the request are here already. `bodyDone`: these are all. */
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
   * The engine's counts. `name`: only if the stream's object may be gone; an object that is there saw the attempt itself. `timings`: only
   * beside a name, and only to a peer that reads TIMED_REPORT.
   */
  | { type: 'report'; stream: number; usage: ReportedUsage; name?: ReportName; timings?: ReportedTimings }
  /** The reports of these streams are stored; forget them. */
  | { type: 'settled'; streams: number[] }
  /** The session's own record: an encoded update of the lattice, opaque here. */
  | { type: 'record'; sequence: number; update: Uint8Array }
  | { type: 'recorded'; sequence: number }
  | { type: 'challenge'; nonce: Uint8Array }
  | { type: 'hello'; publicKey: Uint8Array; signature: Uint8Array; generation: number; window: number }
  /** `gateway`: its name as a gossip peer. */
  | { type: 'welcome'; window: number; gateway: string }
  /** A message of shared/gossip, opaque here. */
  | { type: 'gossip'; bytes: Uint8Array }
  /** From an agent: asks the gateway to probe that session. From a gateway, with the agent's own session: asks if it is there. */
  | { type: 'probe'; nonce: number; session: string }
  | { type: 'probed'; nonce: number; verdict: ProbeVerdict }
  /** The use of this agent's ingress: see shared/usage/ingress-usage. */
  | { type: 'usage'; sequence: number; json: string }
  /** The records of the USAGE frame with that sequence are stored. */
  | { type: 'stored'; sequence: number }
  /** How busy this node's engine is; `kvUse` 0..1. */
  | { type: 'load'; running: number; waiting: number; kvUse?: number }
  /** Tokens that the engine writes. Sent before the LOAD that it belongs to, and only to a peer that reads it: see FRAMES_HEADER. */
  | { type: 'rate'; tokensPerSecond: number }
  /** An order of shared/deployment. An empty one asks what runs and which orders the agent would take. */
  | { type: 'deploy'; sequence: number; order: Uint8Array }
  /** The answer, JSON: see shared/deployment/answer. */
  | { type: 'deployed'; sequence: number; json: string }
  /** SHA-256 of each full block of 16 token ids of the prompt that came as stream `of`, one after the other; empty: no tokenizer. */
  | { type: 'prefixes'; of: number; blocks: Uint8Array }
  /** An agent without a way to this one waits at `/agent/circuit/NAME`. Sent only to a peer that reads it: see FRAMES_HEADER. */
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
