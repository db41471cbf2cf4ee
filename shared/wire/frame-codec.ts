/**
 * The encoding of frames. A frame has its type, its stream number (omitted if the previous frame has the same one), and
 * its fields.
 */

import { FRAME_LIMITS } from './frame-limits.ts';
import { FrameReader } from './frame-reader.ts';
import { FrameWriter } from './frame-writer.ts';
import { CONNECTION_FRAMES, FRAME_TYPES, type Frame, PROBE_VERDICTS, RESET_CODES } from './frames.ts';
import { readHeaders, writeHeaders } from './header-codec.ts';
import { readOpen, writeOpen } from './open-frame-codec.ts';
import {
  BLOCK_DIGEST_BYTES,
  BLOCKS_MAX,
  DATA_MAX_BYTES,
  DEPLOY_MAX_BYTES,
  DEPLOYED_MAX_BYTES,
  RECORD_FRAME_MAX_BYTES,
  TEXT_MAX_BYTES,
  TIMED_REPORT_FRAME,
  USAGE_MAX_BYTES,
} from './protocol-constants.ts';
import { readTimings, readUsageFields, writeTimings, writeUsageFields } from './reported-usage.ts';
import { WireError } from './wire-error.ts';

/** Bit of the first byte: the frame belongs to the stream of the previous frame, and its stream number is omitted. */
const SAME_STREAM = 0x80;

function streamOf(frame: Frame): number | undefined {
  return 'stream' in frame ? frame.stream : undefined;
}

/**
 * Appends a frame. `previous`: stream number of the previous frame in this message. Returns the value of `previous` for
 * the next call.
 */
export function writeFrame(out: FrameWriter, frame: Frame, previous: number | undefined): number | undefined {
  const stream = streamOf(frame);
  const type = numberOf(frame);
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

function numberOf(frame: Frame): number {
  if (frame.type === 'report' && frame.timings !== undefined) return TIMED_REPORT_FRAME;
  return NUMBERS[frame.type];
}

/** The first number of each type. A report has a second one, with timings. */
const NUMBERS = Object.fromEntries(FRAME_TYPES.map((type, number) => [type, number] as const).toReversed()) as Record<
  Frame['type'],
  number
>;

/** Returns a message that contains only this frame. */
export function encodeFrame(frame: Frame): Uint8Array {
  const out = new FrameWriter();
  writeFrame(out, frame, undefined);
  return out.take();
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
      return writeReport(out, frame);
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
    case 'circuit':
      return out.text(frame.name);
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

function writeReport(out: FrameWriter, { usage, name, timings }: Extract<Frame, { type: 'report' }>): void {
  if (timings !== undefined) writeTimings(out, timings);
  writeUsageFields(out, usage, name !== undefined);
  if (name === undefined) return;
  out.text(name.requestId);
  out.varint(name.attempt);
  out.text(name.receipt);
}

/** Reads every frame of a message, in order. @throws WireError at the first invalid frame */
export function readFrames(message: Uint8Array, each: (frame: Frame) => void): void {
  const input = new FrameReader(message);
  let previous: number | undefined;
  while (!input.done) {
    const begin = input.at;
    const first = input.byte();
    const number = first & 0x7f;
    const type = FRAME_TYPES[number];
    if (type === undefined) throw new WireError('bad_frame', `unknown frame type ${number}`);
    let stream = 0;
    if (!CONNECTION_FRAMES.has(type)) {
      if ((first & SAME_STREAM) === 0) previous = input.varint();
      if (previous === undefined) throw new WireError('bad_frame', 'no frame before this one names a stream');
      stream = previous;
    } else if ((first & SAME_STREAM) !== 0) {
      throw new WireError('bad_frame', `${type} belongs to no stream`);
    }
    const frame = number === TIMED_REPORT_FRAME ? readTimedReport(input, stream) : readFields(input, type, stream);
    if (input.at - begin > FRAME_LIMITS[type].bytes)
      throw new WireError('too_large', `${type} of ${input.at - begin} bytes, at most ${FRAME_LIMITS[type].bytes}`);
    each(frame);
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
      if (status > 599) throw new WireError('bad_frame', `${status} is not an HTTP status`);
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
      return { type, sequence: input.varint(), update: input.copy(RECORD_FRAME_MAX_BYTES) };
    case 'recorded':
      return { type, sequence: input.varint() };
    case 'challenge':
      return { type, nonce: input.copy(64) };
    case 'hello':
      return {
        type,
        publicKey: input.copy(64),
        signature: input.copy(128),
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
    case 'circuit':
      return { type, name: input.text(32) };
    case 'deploy':
      return { type, sequence: input.varint(), order: input.copy(DEPLOY_MAX_BYTES) };
    case 'deployed':
      return { type, sequence: input.varint(), json: input.text(DEPLOYED_MAX_BYTES) };
    case 'prefixes':
      return { type, of: input.varint(), blocks: input.copy(BLOCKS_MAX * BLOCK_DIGEST_BYTES) };
  }
}

function readAccept(input: FrameReader, stream: number): Frame {
  const value = input.varint();
  return { type: 'accept', stream, bodyOffset: Math.floor(value / 2), bodyDone: value % 2 === 1 };
}

function readReport(input: FrameReader, stream: number): Extract<Frame, { type: 'report' }> {
  const { usage, named } = readUsageFields(input);
  if (!named) return { type: 'report', stream, usage };
  const name = { requestId: input.text(128), attempt: input.varint(), receipt: input.text(1024) };
  return { type: 'report', stream, usage, name };
}

function readTimedReport(input: FrameReader, stream: number): Frame {
  const timings = readTimings(input);
  return { ...readReport(input, stream), timings };
}

function readStreams(input: FrameReader): number[] {
  const count = input.varint();
  if (count > 65_536) throw new WireError('too_large', `${count} settled reports, at most 65536`);
  const streams: number[] = [];
  for (let i = 0; i < count; i++) streams.push(input.varint());
  return streams;
}
