/**
 * Reads the responses of an engine from one connection (RFC 9112). A response that two parsers could read differently
 * is refused, because the next response on the connection could then belong to another request.
 */

import { END_OF_HEAD, HEAD_MAX_BYTES, HEADER_LINE } from '../../../shared/text/http-head.ts';

/** Maximum length of the line before a chunk: its size and its extensions, which are ignored. */
const SIZE_LINE_MAX_BYTES = 1024;
/** Maximum number of interim responses (1xx) before the response. */
const INTERIM_MAX = 32;

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t\x20-\x7e\x80-\xff]*)?$/;
const LENGTH = /^\d{1,15}$/;
const SIZE_LINE = /^([0-9A-Fa-f]{1,12})(?:;[\t\x20-\x7e\x80-\xff]*)?$/;
const KEEP_ALIVE_TIMEOUT = /(?:^|[ ,;])timeout=(\d{1,6})\b/i;

/** Statuses of responses without a body (RFC 9112 §6.3). */
const NO_BODY: ReadonlySet<number> = new Set([204, 304]);

type Header = readonly [name: string, value: string];

export interface ResponseHead {
  readonly status: number;
  /** In the order of arrival. Names are in lower case; each character of a value is one byte, as with undici. */
  readonly headers: readonly Header[];
  /** True if the head contains the length of the body. */
  readonly sized: boolean;
}

export interface ResponseSink {
  onHead(head: ResponseHead): void;
  /** `bytes` is a view of the memory that was pushed. */
  onData(bytes: Buffer): void;
  /**
   * @param keepMs how long the connection may be idle before the next request; undefined: it must not carry another one
   */
  onEnd(keepMs: number | undefined): void;
}

/** The engine sent something other than an HTTP/1.1 response. */
export class MalformedResponseError extends Error {}

type State = 'head' | 'sized' | 'size' | 'chunk' | 'chunk-end' | 'trailer' | 'until-close' | 'over';

export class ResponseReader {
  readonly #sink: ResponseSink;
  readonly #keepMaxMs: number;
  #state: State = 'over';
  /** The beginning of a head or of a line; its end has not arrived. */
  #begun = '';
  /** Number of body bytes that are missing, of the response or of the current chunk. */
  #left = 0;
  #trailerBytes = 0;
  #interim = 0;
  #keepMs: number | undefined;
  #answered = false;

  /** @param keepMaxMs maximum for `keepMs` of `onEnd` */
  constructor(sink: ResponseSink, keepMaxMs: number) {
    this.#sink = sink;
    this.#keepMaxMs = keepMaxMs;
  }

  /** Call when a request is written. Until then, the engine must send nothing. */
  expect(): void {
    this.#state = 'head';
    this.#interim = 0;
    this.#answered = false;
  }

  /** True if a byte of the response to the current request has arrived. */
  get answered(): boolean {
    return this.#answered;
  }

  /** @throws MalformedResponseError; the connection must then be closed */
  push(bytes: Buffer): void {
    if (bytes.length > 0) this.#answered = true;
    for (let at = 0; at < bytes.length; ) at = this.#step(bytes, at);
  }

  /** Call when the engine has closed its end. Without `onEnd`, the response is incomplete. */
  close(): void {
    if (this.#state === 'until-close') this.#finish(undefined);
  }

  #step(bytes: Buffer, at: number): number {
    switch (this.#state) {
      case 'head':
        return this.#readHead(bytes, at);
      case 'sized':
      case 'chunk':
        return this.#readBody(bytes, at);
      case 'size':
      case 'chunk-end':
      case 'trailer':
        return this.#readLine(bytes, at);
      case 'until-close':
        this.#sink.onData(at === 0 ? bytes : bytes.subarray(at));
        return bytes.length;
      case 'over':
        throw new MalformedResponseError('the engine sent more than its response');
    }
  }

  #readHead(bytes: Buffer, at: number): number {
    const whole = this.#begun === '' ? bytes.indexOf(END_OF_HEAD, at) : -1;
    if (whole >= 0 && whole - at <= HEAD_MAX_BYTES) {
      this.#onHead(bytes.toString('latin1', at, whole));
      return whole + END_OF_HEAD.length;
    }
    const before = this.#begun.length;
    const text = this.#begun + bytes.toString('latin1', at, Math.min(bytes.length, at + HEAD_MAX_BYTES + 1));
    // The end of the head may begin with the last three bytes of the previous read.
    const end = text.indexOf(END_OF_HEAD, Math.max(0, before - 3));
    if (end < 0 || end > HEAD_MAX_BYTES) {
      if (text.length > HEAD_MAX_BYTES || end >= 0)
        throw new MalformedResponseError('the head of the response is too large');
      this.#begun = text;
      return bytes.length;
    }
    this.#begun = '';
    this.#onHead(text.slice(0, end));
    return at + end + END_OF_HEAD.length - before;
  }

  #onHead(text: string): void {
    const lines = text.split('\r\n');
    const [, minor, digits] = STATUS_LINE.exec(lines[0] ?? '') ?? [];
    if (digits === undefined) throw new MalformedResponseError('the response does not begin with a status line');
    const status = Number(digits);
    const headers = readHeaders(lines);
    if (status < 200) return this.#onInterim(status);
    const framing = framingOf(headers, minor === '0');
    const bodiless = NO_BODY.has(status);
    this.#keepMs = framing.kind === 'until-close' && !bodiless ? undefined : keepMsOf(headers, minor, this.#keepMaxMs);
    this.#sink.onHead({ status, headers, sized: framing.kind === 'sized' });
    if (bodiless || (framing.kind === 'sized' && framing.length === 0)) return this.#finish(this.#keepMs);
    this.#left = framing.kind === 'sized' ? framing.length : 0;
    this.#state = framing.kind;
  }

  /** No request asks for 100 Continue or for another protocol. */
  #onInterim(status: number): void {
    if (status === 100 || status === 101) throw new MalformedResponseError(`unexpected status ${status}`);
    if (++this.#interim > INTERIM_MAX) throw new MalformedResponseError('too many interim responses');
  }

  #readBody(bytes: Buffer, at: number): number {
    const end = Math.min(bytes.length, at + this.#left);
    this.#left -= end - at;
    this.#sink.onData(at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end));
    if (this.#left > 0) return end;
    if (this.#state === 'chunk') this.#state = 'chunk-end';
    else if (this.#state === 'sized') this.#finish(this.#keepMs);
    return end;
  }

  #readLine(bytes: Buffer, at: number): number {
    const feed = bytes.indexOf(0x0a, at);
    const max = this.#state === 'trailer' ? HEAD_MAX_BYTES : SIZE_LINE_MAX_BYTES;
    const end = feed < 0 ? bytes.length : feed + 1;
    if (this.#begun.length + end - at > max) throw new MalformedResponseError('a line of the body is too long');
    const line = this.#begun + bytes.toString('latin1', at, end);
    this.#begun = feed < 0 ? line : '';
    if (feed < 0) return end;
    if (!line.endsWith('\r\n')) throw new MalformedResponseError('a line of the body does not end with CRLF');
    this.#onLine(line.slice(0, -2));
    return end;
  }

  #onLine(line: string): void {
    if (this.#state === 'size') return this.#onSize(line);
    if (this.#state === 'chunk-end') {
      if (line !== '') throw new MalformedResponseError('a chunk is longer than its size');
      this.#state = 'size';
      return;
    }
    if (line === '') return this.#finish(this.#keepMs);
    this.#trailerBytes += line.length;
    if (this.#trailerBytes > HEAD_MAX_BYTES || !HEADER_LINE.test(line))
      throw new MalformedResponseError('the trailers are malformed or too large');
  }

  #onSize(line: string): void {
    const digits = SIZE_LINE.exec(line)?.[1];
    if (digits === undefined) throw new MalformedResponseError('a chunk has no valid size');
    this.#left = Number.parseInt(digits, 16);
    this.#trailerBytes = 0;
    this.#state = this.#left === 0 ? 'trailer' : 'chunk';
  }

  #finish(keepMs: number | undefined): void {
    this.#state = 'over';
    this.#sink.onEnd(keepMs);
  }
}

function readHeaders(lines: readonly string[]): Header[] {
  const headers: Header[] = [];
  for (let at = 1; at < lines.length; at++) {
    const matched = HEADER_LINE.exec(lines[at] ?? '');
    if (matched === null) throw new MalformedResponseError('the response has a malformed header');
    headers.push([(matched[1] ?? '').toLowerCase(), withoutSpace(matched[2] ?? '')]);
  }
  return headers;
}

/** Removes spaces and tabs at both ends. `trim` would also remove bytes of UTF-8 that look like a no-break space. */
function withoutSpace(value: string): string {
  let [from, to] = [0, value.length];
  while (from < to && isSpace(value.charCodeAt(from))) from++;
  while (from < to && isSpace(value.charCodeAt(to - 1))) to--;
  return value.slice(from, to);
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

type Framing = { kind: 'sized'; length: number } | { kind: 'size' } | { kind: 'until-close' };

/** How the end of the body is found (RFC 9112 §6.3). */
function framingOf(headers: readonly Header[], isOld: boolean): Framing {
  let coding: string | undefined;
  let length: string | undefined;
  for (const [name, value] of headers) {
    if (name === 'transfer-encoding') {
      if (coding !== undefined) throw new MalformedResponseError('the response has two transfer-encodings');
      coding = value;
    } else if (name === 'content-length') {
      if (length !== undefined) throw new MalformedResponseError('the response has two content-lengths');
      length = value;
    }
  }
  if (coding !== undefined) {
    if (length !== undefined || isOld || coding.toLowerCase() !== 'chunked')
      throw new MalformedResponseError('the end of the response is ambiguous');
    return { kind: 'size' };
  }
  if (length === undefined) return { kind: 'until-close' };
  if (!LENGTH.test(length)) throw new MalformedResponseError('the content-length is not a number');
  return { kind: 'sized', length: Number(length) };
}

/** How long the connection may be idle; undefined: the engine closes it after this response. */
function keepMsOf(headers: readonly Header[], minor: string | undefined, maxMs: number): number | undefined {
  if (minor === '0') return undefined;
  let keepMs = maxMs;
  for (const [name, value] of headers) {
    if (name === 'connection' && value.toLowerCase() !== 'keep-alive') return undefined;
    // One second less than the engine announces, because the engine begins to count earlier.
    const seconds = name === 'keep-alive' ? KEEP_ALIVE_TIMEOUT.exec(value)?.[1] : undefined;
    if (seconds !== undefined) keepMs = Math.min(keepMs, Number(seconds) * 1_000 - 1_000);
  }
  return keepMs > 0 ? keepMs : undefined;
}
