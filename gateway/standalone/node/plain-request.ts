/**
 * Which requests may come in by the inlet: those that are here whole and leave no room for two readings. It is no parser of HTTP: whatever is
 * out of the ordinary (chunks, other methods, `Expect`, a header twice that says how long it is) is for workerd, which parses all of it.
 */
import { BODY_MAX_BYTES, HEAD_MAX_BYTES } from '../../inlet/frames.ts';

type PlainReading =
  /** `head` without the empty line; `end`: where the next request begins. */
  | { kind: 'plain'; head: Buffer; body: Buffer; end: number }
  /** So far it is one. */
  | { kind: 'incomplete' }
  | { kind: 'other' };

const HEADERS_MAX = 100;
/** Longest beginning by which it is told that more has to be read. */
const METHOD = Buffer.from('POST /v1/');
const REQUEST_LINE = /^POST \/v1\/[a-z_\-/]{1,64} HTTP\/1\.1$/;
/** RFC 9110 §5.1, §5.5, ASCII alone. Nothing in it can be matched in two ways: it is run on strangers' words. */
const HEADER_LINE = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}):([\x20-\x7e\t]*)$/;
const LENGTH = /^(0|[1-9]\d{0,5})$/;
/** RFC 9110 §7.2: a name or an address, and a port. What else a URL would be made of is read by one parser alone. */
const HOST = /^[\w.\-:[\]]{1,261}$/;
/** They say how a body or a connection is to be read. */
const NOT_PLAIN = new Set([
  'transfer-encoding',
  'te',
  'trailer',
  'upgrade',
  'expect',
  'proxy-connection',
  'http2-settings',
]);

const OTHER: PlainReading = { kind: 'other' };
const INCOMPLETE: PlainReading = { kind: 'incomplete' };

export function readPlain(bytes: Buffer): PlainReading {
  const seen = Math.min(bytes.length, METHOD.length);
  if (bytes.compare(METHOD, 0, seen, 0, seen) !== 0) return OTHER;
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd < 0) return bytes.length < HEAD_MAX_BYTES ? INCOMPLETE : OTHER;
  if (headEnd > HEAD_MAX_BYTES) return OTHER;
  const length = bodyLength(bytes.toString('latin1', 0, headEnd));
  if (length === undefined) return OTHER;
  const begin = headEnd + 4;
  const end = begin + length;
  if (bytes.length < end) return INCOMPLETE;
  return { kind: 'plain', head: bytes.subarray(0, headEnd), body: bytes.subarray(begin, end), end };
}

/** Undefined where the head is not plain, or the body too long. */
function bodyLength(head: string): number | undefined {
  const lines = head.split('\r\n');
  if (!REQUEST_LINE.test(lines[0] ?? '') || lines.length > HEADERS_MAX + 1) return undefined;
  let length: number | undefined;
  let host = false;
  for (let at = 1; at < lines.length; at++) {
    const matched = HEADER_LINE.exec(lines[at] ?? '');
    if (matched === null) return undefined;
    const name = (matched[1] ?? '').toLowerCase();
    const value = (matched[2] ?? '').trim();
    if (NOT_PLAIN.has(name)) return undefined;
    if (name === 'connection' && value.toLowerCase() !== 'keep-alive') return undefined;
    if (name === 'host') {
      if (host || !HOST.test(value)) return undefined;
      host = true;
    }
    if (name === 'content-length') {
      if (length !== undefined || !LENGTH.test(value)) return undefined;
      length = Number(value);
    }
  }
  return host && length !== undefined && length <= BODY_MAX_BYTES ? length : undefined;
}
