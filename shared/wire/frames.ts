/**
 * The frames of the tunnel, their fields and type numbers. A message is a sequence of frames, encoded by
 * frame-codec.ts. docs/design/protocol.md has the table of frames. The end that opens a stream chooses its number,
 * which never repeats within a session.
 */
import type { HeaderList } from './header-codec.ts';
import type { ReportedTimings, ReportedUsage } from './reported-usage.ts';

/** Reason why a stream ended without END. The index of each entry is part of the protocol: only append. */
export const RESET_CODES = [
  'cancelled', // The receiver of the answer does not want it any more.
  'refused', // The node does not serve requests: it is joining, draining or leaving.
  'unknown', // The stream does not exist at this end, or no longer.
  'engine_unreachable', // The engine refused the connection.
  'engine_closed', // The engine closed the connection before its head or inside its answer.
  'first_byte_timeout',
  'stall_timeout',
  'overloaded',
  'failed', // An internal error of the end that sends the RESET.
  'seal_refused', // This node cannot open the sealed request; the cause is not disclosed.
  'over_quota', // The caller's institution has reached a limit of this node's institution.
] as const;
export type ResetCode = (typeof RESET_CODES)[number];

/**
 * Replaces bytes of the request's body before it is sent to the engine. Offsets refer to the body that the gateway
 * sent.
 */
export interface BodyEdit {
  at: number;
  remove: number;
  insert: Uint8Array;
}

/** Opens a stream, or claims a stream that was opened by a previous object or over a previous socket. */
export interface OpenFrame {
  type: 'open';
  stream: number;
  /** True for a claim: if the agent does not know the attempt, it replies RESET unknown and starts nothing. */
  resume: boolean;
  /** Identifies the attempt across sockets and objects, together with `attempt`. */
  requestId: string;
  attempt: number;
  /** Offset of the first byte of the answer that the opener wants. */
  answerOffset: number;
  /** Index of the endpoint in shared/openai/endpoints. */
  endpoint: number;
  headers: HeaderList;
  edits: BodyEdit[];
  /**
   * `streaming`: the answer is an event stream. `dropUsage`: the agent removes the stream's usage event, because the
   * client did not request it. The event exists only because the gateway's edit requests it.
   */
  streaming: boolean;
  dropUsage: boolean;
  /** Time limits of the engine in milliseconds; 0: no limit. */
  firstByteMs: number;
  stallMs: number;
  /** Opaque to the agent, which returns the receipt in a REPORT if the stream's object no longer exists. */
  receipt: string;
  /** True if the gateway wants a PREFIXES frame for the prompt. */
  prefixes?: boolean;
  /** Length of the request's body as sent, in bytes; undefined if it is not known before the end. */
  bodyLength: number | undefined;
}

export type Frame =
  | OpenFrame
  /**
   * The agent has read the OPEN frame. `bodyOffset`: number of bytes of the request that it has. `bodyDone`: these
   * bytes are the whole body.
   */
  | { type: 'accept'; stream: number; bodyOffset: number; bodyDone: boolean }
  /**
   * `engineTenths`: time from the agent's request to the engine until the engine's response head, in tenths of a
   * millisecond.
   */
  | { type: 'head'; stream: number; status: number; engineTenths: number; headers: HeaderList }
  | { type: 'data'; stream: number; offset: number; bytes: Uint8Array }
  /** The body is complete and `offset` bytes long. */
  | { type: 'end'; stream: number; offset: number }
  | { type: 'reset'; stream: number; code: ResetCode; message: string }
  /**
   * The sender has passed on `consumed` bytes, and its peer may send `window` more after these. Stream 0 is the whole
   * socket.
   */
  | { type: 'credit'; stream: number; consumed: number; window: number }
  /**
   * The engine's token counts. `name` is sent only if the stream's object may no longer exist, because an existing
   * object already knows the attempt's name. `timings` are sent only together with `name`, and only to a peer that
   * reads TIMED_REPORT_FRAME.
   */
  | { type: 'report'; stream: number; usage: ReportedUsage; name?: ReportName; timings?: ReportedTimings }
  /** The reports of these streams are stored, so the agent can delete them. */
  | { type: 'settled'; streams: number[] }
  /** The session's own record, as an encoded update of the lattice, which this layer does not read. */
  | { type: 'record'; sequence: number; update: Uint8Array }
  | { type: 'recorded'; sequence: number }
  | { type: 'challenge'; nonce: Uint8Array }
  | { type: 'hello'; publicKey: Uint8Array; signature: Uint8Array; generation: number; window: number }
  /** `gateway`: the id of the gateway as a gossip peer. */
  | { type: 'welcome'; window: number; gateway: string }
  /** A message of shared/gossip, which this layer does not read. */
  | { type: 'gossip'; bytes: Uint8Array }
  /**
   * From an agent: asks the gateway to probe `session`. From a gateway: asks whether this agent is alive; `session` is
   * the agent's own.
   */
  | { type: 'probe'; nonce: number; session: string }
  | { type: 'probed'; nonce: number; verdict: ProbeVerdict }
  /** Usage records that this agent made; see shared/usage/ingress-usage. */
  | { type: 'usage'; sequence: number; json: string }
  /** The records of the USAGE frame with the same `sequence` are stored. */
  | { type: 'stored'; sequence: number }
  /** Load of this node's engine. `kvUse`: used fraction of the KV cache, 0 to 1. */
  | { type: 'load'; running: number; waiting: number; kvUse?: number }
  /**
   * The engine's tokens per second. Sent before the LOAD frame, and only to a peer that reads RATE frames; see
   * FRAMES_HEADER.
   */
  | { type: 'rate'; tokensPerSecond: number }
  /**
   * A deployment order (shared/deployment). An empty order asks which engines run and which orders the agent accepts.
   */
  | { type: 'deploy'; sequence: number; order: Uint8Array }
  /** The reply to a deployment order as JSON; see shared/deployment/order-reply.ts. */
  | { type: 'deployed'; sequence: number; json: string }
  /**
   * Digests of the prompt that arrived on stream `of`: the SHA-256 of each full block of 16 token ids, concatenated.
   * Empty if the agent has no tokenizer.
   */
  | { type: 'prefixes'; of: number; blocks: Uint8Array }
  /**
   * Another agent, which has no direct path to this agent, waits at `/agent/circuit/NAME`. Sent only to a peer that
   * reads CIRCUIT frames; see FRAMES_HEADER.
   */
  | { type: 'circuit'; name: string };

/**
 * Result of a probe. `unknown`: the probe could not be made, which proves nothing. The index of each entry is part of
 * the protocol.
 */
export const PROBE_VERDICTS = ['alive', 'silent', 'unknown'] as const;
export type ProbeVerdict = (typeof PROBE_VERDICTS)[number];

export interface ReportName {
  requestId: string;
  attempt: number;
  receipt: string;
}

/** Frame types in the order of their type numbers. */
export const FRAME_TYPES = [
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
  undefined, // 15 and 16 were never used and stay reserved.
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
  'report', // A REPORT with timings has type 26 instead.
  'circuit',
] as const satisfies readonly (Frame['type'] | undefined)[];

/** Frames that belong to no stream. */
export const CONNECTION_FRAMES: ReadonlySet<Frame['type']> = new Set([
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
