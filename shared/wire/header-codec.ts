import type { FrameReader } from './frame-reader.ts';
import type { FrameWriter } from './frame-writer.ts';
import { HEADER_NAME_MAX_BYTES, HEADERS_MAX, TEXT_MAX_BYTES } from './protocol-constants.ts';
import { WireError } from './wire-error.ts';

/** Headers in order; names are in lower case. */
export type HeaderList = ReadonlyArray<readonly [name: string, value: string]>;

/**
 * Headers that nearly every request or answer contains, as in HPACK's static table (RFC 7541 appendix A). The index of
 * each entry is part of the protocol: only append.
 */
const TABLE: HeaderList = [
  ['content-type', 'application/json'],
  ['content-type', 'text/event-stream; charset=utf-8'],
  ['content-type', 'text/event-stream'],
  ['accept', 'application/json'],
  ['accept', 'text/event-stream'],
  ['accept', '*/*'],
  ['anthropic-version', '2023-06-01'],
  ['anthropic-beta', ''],
  ['traceparent', ''],
  ['tracestate', ''],
  ['retry-after', ''],
  ['retry-after-ms', ''],
  ['openai-processing-ms', ''],
  ['content-disposition', ''],
  ['content-type', 'application/json; charset=utf-8'],
  ['content-type', 'text/plain; charset=utf-8'],
  ['content-type', 'audio/mpeg'],
  ['content-type', 'audio/wav'],
  ['x-request-id', ''],
];

/** The entries of each name of the table: the index of its first entry, and the index of each value. */
const NAMES = new Map<string, { first: number; values: Map<string, number> }>();
for (const [index, [name, value]] of TABLE.entries()) {
  const known = NAMES.get(name);
  if (known === undefined) NAMES.set(name, { first: index, values: new Map([[value, index]]) });
  else known.values.set(value, index);
}

/**
 * Encoding per header: `0 name value`; `2k+1` for the name and value of entry k; or `2k+2 value` for the name of entry
 * k with another value.
 */
export function writeHeaders(out: FrameWriter, headers: HeaderList): void {
  out.varint(headers.length);
  for (const [name, value] of headers) {
    const known = NAMES.get(name);
    const pair = known?.values.get(value);
    if (pair !== undefined) {
      out.varint(2 * pair + 1);
      continue;
    }
    if (known === undefined) {
      out.varint(0);
      out.text(name);
    } else {
      out.varint(2 * known.first + 2);
    }
    out.text(value);
  }
}

export function readHeaders(input: FrameReader): [string, string][] {
  const count = input.varint();
  if (count > HEADERS_MAX) throw new WireError('too_large', `${count} headers, at most ${HEADERS_MAX}`);
  const headers: [string, string][] = [];
  for (let i = 0; i < count; i++) {
    const code = input.varint();
    if (code === 0) {
      headers.push([input.text(HEADER_NAME_MAX_BYTES), input.text(TEXT_MAX_BYTES)]);
      continue;
    }
    const entry = TABLE[(code - 1) >> 1];
    if (entry === undefined) throw new WireError('bad_frame', `unknown header code ${code}`);
    headers.push([entry[0], code % 2 === 1 ? entry[1] : input.text(TEXT_MAX_BYTES)]);
  }
  return headers;
}
