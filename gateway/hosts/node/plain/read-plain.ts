/**
 * The requests that are read here and not by `node:http`: `POST /v1/…`, whole, in a form that no two parsers of HTTP/1.1 read differently
 * (RFC 9112). This is no parser: what it does not know in every byte it leaves to `node:http`.
 */

/** Bodies above this are read as streams, which have bounds of their own. */
export const PLAIN_BODY_MAX_BYTES = 64 * 1024;
const HEAD_MAX_BYTES = 16 * 1024;
const HEADERS_MAX = 64;

/** One request without a doubt. */
export interface PlainHead {
  /** Without dots, escapes, doubled slashes and query. */
  readonly path: string;
  /** By name in lower case; no name comes twice. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: Uint8Array;
}

const END_OF_HEAD = '\r\n\r\n';
const REQUEST_LINE = /^POST (\/v1(?:\/[A-Za-z0-9_-]+)+) HTTP\/1\.1$/;
/** RFC 9110 §5.1 and §5.5, ASCII alone. No part of a line can match in two ways: strangers write it. */
const HEADER_LINE = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\x20-\x7e\t]*)$/;
const LENGTH = /^(?:0|[1-9]\d{0,5})$/;
const HOST = /^[\w.-]+(?::\d{1,5})?$/;
/** They say how a body or a connection has to be read. */
const NOT_PLAIN: ReadonlySet<string> = new Set([
  'connection',
  'expect',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** `incomplete`: the head is plain, and its body has not come whole. `other`: for `node:http`. */
export function readPlain(bytes: Buffer): PlainHead | 'incomplete' | 'other' {
  const headEnd = bytes.indexOf(END_OF_HEAD);
  if (headEnd < 0 || headEnd > HEAD_MAX_BYTES) return 'other';
  const lines = bytes.toString('latin1', 0, headEnd).split('\r\n');
  const path = REQUEST_LINE.exec(lines[0] ?? '')?.[1];
  if (path === undefined || lines.length > HEADERS_MAX + 1) return 'other';
  const headers = readHeaders(lines);
  const length = headers?.get('content-length');
  if (headers === undefined || length === undefined || !LENGTH.test(length)) return 'other';
  const begin = headEnd + END_OF_HEAD.length;
  const end = begin + Number(length);
  if (end - begin > PLAIN_BODY_MAX_BYTES || bytes.length > end) return 'other';
  if (bytes.length < end) return 'incomplete';
  // A copy: what the socket read into is much larger, and a request may run for an hour.
  return { path, headers, body: new Uint8Array(bytes.subarray(begin, end)) };
}

/** Undefined where a line is not plain. */
function readHeaders(lines: readonly string[]): Map<string, string> | undefined {
  const headers = new Map<string, string>();
  for (let at = 1; at < lines.length; at++) {
    const matched = HEADER_LINE.exec(lines[at] ?? '');
    if (matched === null) return undefined;
    const name = (matched[1] ?? '').toLowerCase();
    const value = (matched[2] ?? '').trim();
    if (headers.has(name)) return undefined;
    if (NOT_PLAIN.has(name) && !(name === 'connection' && value.toLowerCase() === 'keep-alive')) return undefined;
    headers.set(name, value);
  }
  return HOST.test(headers.get('host') ?? '') ? headers : undefined;
}
