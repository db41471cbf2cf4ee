/**
 * Frames of the tunnel: what each carries and how it is spelled. A message is a sequence of frames; docs/protocol.md has the
 * same tables for readers. `stream` numbers are given by the opener and never repeat within a session.
 */
import { WireError } from './error.ts';
import { type HeaderList, readHeaders, writeHeaders } from './headers.ts';
import {
  BLOCK_DIGEST_BYTES,
  BLOCKS_MAX,
  DATA_MAX_BYTES,
  DEPLOY_MAX_BYTES,
  DEPLOYED_MAX_BYTES,
  EDITS_MAX,
  RECORD_MAX_BYTES,
  TEXT_MAX_BYTES,
  USAGE_MAX_BYTES,
} from './limits.ts';
import { FrameReader } from './reader.ts';
import { type ReportedUsage, readUsage, writeUsage } from './usage.ts';
import type { FrameWriter } from './writer.ts';

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
  /** What the engine counted; `name` only where the stream's object may be gone. */
  | { type: 'report'; stream: number; usage: ReportedUsage; name?: ReportName }
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
  /** What this agent's ingress used: see shared/asking/ingress-usage. */
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
  | { type: 'prefixes'; of: number; blocks: Uint8Array };

/** What a probe found; `unknown`: it could not be made, which proves nothing. The number is the protocol. */
export const PROBE_VERDICTS = ['alive', 'silent', 'unknown'] as const;
export type ProbeVerdict = (typeof PROBE_VERDICTS)[number];

export interface ReportName {
  requestId: string;
  attempt: number;
  receipt: string;
}

const TYPES = [
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
  undefined, // 15 and 16 are kept for admission through a peer
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
] as const satisfies readonly (Frame['type'] | undefined)[];

/** Frames of no stream. */
const CONNECTION: ReadonlySet<Frame['type']> = new Set([
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
]);

/** Set on the first byte: same stream as the frame before, whose number is left out. */
const SAME_STREAM = 0x80;

const FLAG_RESUME = 1;
const FLAG_STREAMING = 2;
const FLAG_DROP_USAGE = 4;
const FLAG_UUID = 8;
const FLAG_PREFIXES = 16;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

function streamOf(frame: Frame): number | undefined {
  return 'stream' in frame ? frame.stream : undefined;
}

/** Appends a frame. `previous` is the stream of the frame before it in this message; returns the stream to hand in next. */
export function writeFrame(out: FrameWriter, frame: Frame, previous: number | undefined): number | undefined {
  const stream = streamOf(frame);
  const type = TYPES.indexOf(frame.type);
  if (stream === undefined) {
    out.byte(type);
  } else if (stream === previous) {
    out.byte(type | SAME_STREAM);
  } else {
    out.byte(type);
    out.varint(stream);
  }
  writeFields(out, frame);
  return stream ?? previous;
}

function writeFields(out: FrameWriter, frame: Frame): void {
  switch (frame.type) {
    case 'open':
      return writeOpen(out, frame);
    case 'accept':
      return out.varint(frame.bodyOffset * 2 + (frame.bodyDone ? 1 : 0));
    case 'head':
      out.varint(frame.status - 200);
      out.varint(frame.engineTenths);
      return writeHeaders(out, frame.headers);
    case 'data':
      out.varint(frame.offset);
      return out.blob(frame.bytes);
    case 'end':
      return out.varint(frame.offset);
    case 'reset':
      out.varint(RESET_CODES.indexOf(frame.code));
      return out.text(frame.message.slice(0, 512));
    case 'credit':
      out.varint(frame.consumed);
      return out.varint(frame.window);
    case 'report':
      return writeReport(out, frame.usage, frame.name);
    case 'settled':
      out.varint(frame.streams.length);
      for (const stream of frame.streams) out.varint(stream);
      return;
    case 'record':
      out.varint(frame.sequence);
      return out.blob(frame.update);
    case 'recorded':
      return out.varint(frame.sequence);
    case 'challenge':
      return out.blob(frame.nonce);
    case 'hello':
      out.blob(frame.publicKey);
      out.blob(frame.signature);
      out.varint(frame.generation);
      return out.varint(frame.window);
    case 'welcome':
      out.varint(frame.window);
      return out.text(frame.gateway);
    case 'gossip':
      return out.blob(frame.bytes);
    case 'probe':
      out.varint(frame.nonce);
      return out.text(frame.session);
    case 'probed':
      out.varint(frame.nonce);
      return out.varint(PROBE_VERDICTS.indexOf(frame.verdict));
    case 'usage':
      out.varint(frame.sequence);
      return out.text(frame.json);
    case 'stored':
      return out.varint(frame.sequence);
    case 'load':
      out.varint(frame.running);
      out.varint(frame.waiting);
      return out.varint(frame.kvUse === undefined ? 0 : 1 + Math.round(frame.kvUse * 1000));
    case 'rate':
      return out.varint(Math.round(frame.tokensPerSecond * 10));
    case 'deploy':
      out.varint(frame.sequence);
      return out.blob(frame.order);
    case 'deployed':
      out.varint(frame.sequence);
      return out.text(frame.json);
    case 'prefixes':
      out.varint(frame.of);
      return out.blob(frame.blocks);
  }
}

function writeOpen(out: FrameWriter, frame: OpenFrame): void {
  const uuid = UUID.test(frame.requestId);
  out.varint(
    (frame.resume ? FLAG_RESUME : 0) |
      (frame.streaming ? FLAG_STREAMING : 0) |
      (frame.dropUsage ? FLAG_DROP_USAGE : 0) |
      (uuid ? FLAG_UUID : 0) |
      (frame.prefixes === true ? FLAG_PREFIXES : 0),
  );
  writeRequestId(out, frame.requestId, uuid);
  out.varint(frame.attempt);
  out.varint(frame.answerOffset);
  out.varint(frame.endpoint);
  writeHeaders(out, frame.headers);
  out.varint(frame.edits.length);
  for (const edit of frame.edits) {
    out.varint(edit.at);
    out.varint(edit.remove);
    out.blob(edit.insert);
  }
  out.varint(frame.firstByteMs);
  out.varint(frame.stallMs);
  out.text(frame.receipt);
  out.varint(frame.bodyLength === undefined ? 0 : frame.bodyLength + 1);
}

/** Where the bytes of a UUID's text begin. */
const UUID_BYTES = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34] as const;
const UUID_DASHES: ReadonlySet<number> = new Set([8, 13, 18, 23]);
const HEX_PAIRS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

/** Of a lower-case digit. */
function hexDigit(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code < 0x3a ? code - 0x30 : code - 0x57;
}

function writeRequestId(out: FrameWriter, id: string, uuid: boolean): void {
  if (!uuid) return out.text(id);
  for (const at of UUID_BYTES) out.byte(hexDigit(id, at) * 16 + hexDigit(id, at + 1));
}

function readRequestId(input: FrameReader, uuid: boolean): string {
  if (!uuid) return input.text(128);
  let id = '';
  for (const byte of input.bytes(16)) {
    if (UUID_DASHES.has(id.length)) id += '-';
    id += HEX_PAIRS[byte];
  }
  return id;
}

function writeReport(out: FrameWriter, usage: ReportedUsage, name: ReportName | undefined): void {
  writeUsage(out, usage, name !== undefined);
  if (name === undefined) return;
  out.text(name.requestId);
  out.varint(name.attempt);
  out.text(name.receipt);
}

/** Reads every frame of a message, in order. Throws WireError at the first thing that is wrong. */
export function readFrames(message: Uint8Array, each: (frame: Frame) => void): void {
  const input = new FrameReader(message);
  let previous: number | undefined;
  while (!input.done) {
    const first = input.byte();
    const type = TYPES[first & 0x7f];
    if (type === undefined) throw new WireError('bad_frame', `no frame type ${first & 0x7f}`);
    let stream = 0;
    if (!CONNECTION.has(type)) {
      if ((first & SAME_STREAM) === 0) previous = input.varint();
      if (previous === undefined) throw new WireError('bad_frame', 'no frame before this one names a stream');
      stream = previous;
    } else if ((first & SAME_STREAM) !== 0) {
      throw new WireError('bad_frame', `${type} belongs to no stream`);
    }
    each(readFields(input, type, stream));
  }
}

function readFields(input: FrameReader, type: Frame['type'], stream: number): Frame {
  switch (type) {
    case 'open':
      return readOpen(input, stream);
    case 'accept':
      return readAccept(input, stream);
    case 'head': {
      const status = 200 + input.varint();
      if (status > 599) throw new WireError('bad_frame', `status ${status}`);
      return { type, stream, status, engineTenths: input.varint(), headers: readHeaders(input) };
    }
    case 'data':
      return { type, stream, offset: input.varint(), bytes: input.blob(DATA_MAX_BYTES) };
    case 'end':
      return { type, stream, offset: input.varint() };
    case 'reset': {
      const code = RESET_CODES[input.varint()] ?? 'failed';
      return { type, stream, code, message: input.text(TEXT_MAX_BYTES) };
    }
    case 'credit':
      return { type, stream, consumed: input.varint(), window: input.varint() };
    case 'report':
      return readReport(input, stream);
    case 'settled':
      return { type, streams: readStreams(input) };
    case 'record':
      return { type, sequence: input.varint(), update: copied(input.blob(RECORD_MAX_BYTES)) };
    case 'recorded':
      return { type, sequence: input.varint() };
    case 'challenge':
      return { type, nonce: copied(input.blob(64)) };
    case 'hello':
      return {
        type,
        publicKey: copied(input.blob(64)),
        signature: copied(input.blob(128)),
        generation: input.varint(),
        window: input.varint(),
      };
    case 'welcome':
      return { type, window: input.varint(), gateway: input.text(64) };
    case 'gossip':
      return { type, bytes: input.blob(DATA_MAX_BYTES) };
    case 'probe':
      return { type, nonce: input.varint(), session: input.text(32) };
    case 'probed':
      return { type, nonce: input.varint(), verdict: PROBE_VERDICTS[input.varint()] ?? 'unknown' };
    case 'usage':
      return { type, sequence: input.varint(), json: input.text(USAGE_MAX_BYTES) };
    case 'stored':
      return { type, sequence: input.varint() };
    case 'load': {
      const [running, waiting, kv] = [input.varint(), input.varint(), input.varint()];
      return { type, running, waiting, ...(kv === 0 ? {} : { kvUse: Math.min(1, (kv - 1) / 1000) }) };
    }
    case 'rate':
      return { type, tokensPerSecond: input.varint() / 10 };
    case 'deploy':
      return { type, sequence: input.varint(), order: copied(input.blob(DEPLOY_MAX_BYTES)) };
    case 'deployed':
      return { type, sequence: input.varint(), json: input.text(DEPLOYED_MAX_BYTES) };
    case 'prefixes':
      return { type, of: input.varint(), blocks: copied(input.blob(BLOCKS_MAX * BLOCK_DIGEST_BYTES)) };
  }
}

function readAccept(input: FrameReader, stream: number): Frame {
  const value = input.varint();
  return { type: 'accept', stream, bodyOffset: Math.floor(value / 2), bodyDone: value % 2 === 1 };
}

function readOpen(input: FrameReader, stream: number): OpenFrame {
  const flags = input.varint();
  return {
    type: 'open',
    stream,
    resume: (flags & FLAG_RESUME) !== 0,
    streaming: (flags & FLAG_STREAMING) !== 0,
    dropUsage: (flags & FLAG_DROP_USAGE) !== 0,
    requestId: readRequestId(input, (flags & FLAG_UUID) !== 0),
    attempt: input.varint(),
    answerOffset: input.varint(),
    endpoint: input.varint(),
    headers: readHeaders(input),
    edits: readEdits(input),
    firstByteMs: input.varint(),
    stallMs: input.varint(),
    receipt: input.text(1024),
    ...((flags & FLAG_PREFIXES) !== 0 && { prefixes: true }),
    bodyLength: readLength(input),
  };
}

function readLength(input: FrameReader): number | undefined {
  const value = input.varint();
  return value === 0 ? undefined : value - 1;
}

function readEdits(input: FrameReader): BodyEdit[] {
  const count = input.varint();
  if (count > EDITS_MAX) throw new WireError('too_large', `${count} edits, at most ${EDITS_MAX}`);
  const edits: BodyEdit[] = [];
  for (let i = 0; i < count; i++) {
    edits.push({ at: input.varint(), remove: input.varint(), insert: copied(input.blob(TEXT_MAX_BYTES)) });
  }
  return edits;
}

function readReport(input: FrameReader, stream: number): Frame {
  const { usage, named } = readUsage(input);
  if (!named) return { type: 'report', stream, usage };
  const name = { requestId: input.text(128), attempt: input.varint(), receipt: input.text(1024) };
  return { type: 'report', stream, usage, name };
}

function readStreams(input: FrameReader): number[] {
  const count = input.varint();
  if (count > 65_536) throw new WireError('too_large', `${count} settled reports`);
  const streams: number[] = [];
  for (let i = 0; i < count; i++) streams.push(input.varint());
  return streams;
}

/** `slice` of a Node `Buffer` is a view, and would keep the whole message for the sake of a field. */
function copied(field: Uint8Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(field);
}
