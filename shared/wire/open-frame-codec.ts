/** The encoding of an OPEN frame's fields. The type and the stream number are encoded before them. */

import type { FrameReader } from './frame-reader.ts';
import type { FrameWriter } from './frame-writer.ts';
import type { BodyEdit, OpenFrame } from './frames.ts';
import { readHeaders, writeHeaders } from './header-codec.ts';
import { EDITS_MAX, TEXT_MAX_BYTES } from './protocol-constants.ts';
import { WireError } from './wire-error.ts';

const FLAG_RESUME = 1;
const FLAG_STREAMING = 2;
const FLAG_DROP_USAGE = 4;
const FLAG_UUID = 8;
const FLAG_PREFIXES = 16;

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

export function writeOpen(out: FrameWriter, frame: OpenFrame): void {
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

/** Positions of the hex pairs in the text of a UUID. */
const UUID_BYTES = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34] as const;
const UUID_DASHES: ReadonlySet<number> = new Set([8, 13, 18, 23]);
const HEX_PAIRS = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

/** Value of a lower-case hex digit. */
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

export function readOpen(input: FrameReader, stream: number): OpenFrame {
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
    edits.push({ at: input.varint(), remove: input.varint(), insert: input.copy(TEXT_MAX_BYTES) });
  }
  return edits;
}
