/**
 * Recognizes requests that bypass `node:http`: complete `POST /v1/…` requests in a form that all HTTP/1.1 parsers read
 * in the same way (RFC 9112). This is not a parser: a request with any byte that is not recognized is left to
 * `node:http`.
 */

import { ASCII_HEADER_LINE, END_OF_HEAD, FRAMING_HEADERS, HEAD_MAX_BYTES } from '../../../../shared/text/http-head.ts';

/** Requests with larger bodies are left to `node:http`, which reads them as streams with their own limits. */
const FAST_PATH_BODY_MAX_BYTES = 64 * 1024;
const HEADERS_MAX = 64;

/** A request that all parsers read in the same way. */
export interface FastPathHead {
  /** The path, without dots, escapes, doubled slashes or a query. */
  readonly path: string;
  /** Headers by lower-case name. No name occurs twice. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: Uint8Array;
}

const REQUEST_LINE = /^POST (\/v1(?:\/[A-Za-z0-9_-]+)+) HTTP\/1\.1$/;
const LENGTH = /^(?:0|[1-9]\d{0,5})$/;
const HOST = /^[\w.-]+(?::\d{1,5})?$/;

/**
 * Reads a request. `incomplete`: the head is recognized, but the body has not arrived completely. `other`: the request
 * is for `node:http`.
 */
export function readFastPathHead(bytes: Buffer): FastPathHead | 'incomplete' | 'other' {
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
  if (end - begin > FAST_PATH_BODY_MAX_BYTES || bytes.length > end) return 'other';
  if (bytes.length < end) return 'incomplete';
  // The body is copied, because the socket's buffer is much larger and a request may run for an hour.
  return { path, headers, body: new Uint8Array(bytes.subarray(begin, end)) };
}

/** Undefined if a line is not recognized. */
function readHeaders(lines: readonly string[]): Map<string, string> | undefined {
  const headers = new Map<string, string>();
  for (let at = 1; at < lines.length; at++) {
    const matched = ASCII_HEADER_LINE.exec(lines[at] ?? '');
    if (matched === null) return undefined;
    const name = (matched[1] ?? '').toLowerCase();
    const value = (matched[2] ?? '').trim();
    if (headers.has(name)) return undefined;
    if (FRAMING_HEADERS.has(name) && !(name === 'connection' && value.toLowerCase() === 'keep-alive')) return undefined;
    headers.set(name, value);
  }
  return HOST.test(headers.get('host') ?? '') ? headers : undefined;
}
