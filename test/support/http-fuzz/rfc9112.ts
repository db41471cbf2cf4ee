/**
 * A strict reader of HTTP/1.1 requests according to RFC 9112: the judge of what `node:http` reads. We wrote it because
 * a judge must be stricter than the parser under test, which is llhttp. h11 and http-parser also accept a bare LF and
 * folded lines, so they would agree with a parser that errs. It reads bytes that are all present; it sends no responses
 * and keeps no state.
 */

export interface ReadRequest {
  method: string;
  target: string;
  version: '1.0' | '1.1';
  /** Headers with lower-case names, in the order of the request. */
  headers: readonly (readonly [name: string, value: string])[];
  body: string;
}

export interface Reading {
  /** Complete requests. */
  requests: readonly ReadRequest[];
  /**
   * What follows the requests. `nothing` · `part`: an incomplete request · `refused`: bytes that are not a request ·
   * `last`: anything, which is not read, because the previous request was the last of its connection.
   */
  rest: 'nothing' | 'part' | 'refused' | 'last';
  /** Set if the head of what follows is valid: it may be answered before its body is read. */
  restHead: ReadRequest | undefined;
  /** Why the bytes are refused; only if `rest` is `refused`. */
  reason?: string;
}

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const TARGET = /^[!-~]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const DIGITS = /^[0-9]+$/;
const CHUNK = /^([0-9A-Fa-f]+)((?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?)$/;
/**
 * The largest number that a parser can represent. A length beyond the present bytes makes a request incomplete, however
 * large it is.
 */
const LENGTH_MAX = 2n ** 64n - 1n;

class Refusal extends Error {}
class Part extends Error {}

/** Each character of `bytes` is a byte, U+0000 to U+00FF. */
export function readRequests(bytes: string): Reading {
  const reader = new Reader(bytes);
  const requests: ReadRequest[] = [];
  for (;;) {
    reader.head = undefined;
    try {
      if (reader.atEnd()) return { requests, rest: 'nothing', restHead: undefined };
      const request = reader.request();
      requests.push(request);
      if (isLast(request)) return { requests, rest: reader.atEnd() ? 'nothing' : 'last', restHead: undefined };
    } catch (error) {
      if (error instanceof Part) return { requests, rest: 'part', restHead: reader.head };
      if (error instanceof Refusal) return { requests, rest: 'refused', restHead: reader.head, reason: error.message };
      throw error;
    }
  }
}

export function valuesOf({ headers }: Pick<ReadRequest, 'headers'>, name: string): string[] {
  return headers.filter(([one]) => one === name).map(([, value]) => value);
}

/**
 * True if nothing after this request is read on its connection (§9.3). CONNECT and an upgrade hand the connection to
 * another protocol.
 */
function isLast(request: ReadRequest): boolean {
  const options = valuesOf(request, 'connection').flatMap((value) => value.toLowerCase().split(/[\t ]*,[\t ]*/));
  if (options.includes('close') || request.method === 'CONNECT') return true;
  if (isOffer(request)) return true;
  return request.version === '1.0' && !options.includes('keep-alive');
}

/** True for an offer of another protocol on this connection (§7.8 of RFC 9110). */
export function isOffer(request: ReadRequest): boolean {
  const options = valuesOf(request, 'connection').join(',').toLowerCase();
  return options.includes('upgrade') && valuesOf(request, 'upgrade').length > 0;
}

/** llhttp accepts this name from clients that stream audio to an Icecast server. Such a request has no body. */
function isIce(method: string, protocol: string): boolean {
  return method === 'SOURCE' && protocol === 'ICE/1.0';
}

class Reader {
  readonly #bytes: string;
  #at = 0;
  head: ReadRequest | undefined;

  constructor(bytes: string) {
    this.#bytes = bytes;
  }

  /**
   * §2.2: empty lines before a request are skipped; llhttp also counts a bare CR or LF as one, and no request can hide
   * in either.
   */
  atEnd(): boolean {
    while (this.#bytes[this.#at] === '\r' || this.#bytes[this.#at] === '\n') this.#at++;
    return this.#at >= this.#bytes.length;
  }

  request(): ReadRequest {
    const line = this.#line();
    // §3 allows a server to accept more than one space between the parts of a request line, as llhttp does.
    const [method = '', target = '', protocol = '', more] = line.split(/(?<=\S) +/);
    if (more !== undefined || !TOKEN.test(method) || !TARGET.test(target)) throw new Refusal('request line');
    const version =
      protocol === 'HTTP/1.1' ? '1.1' : protocol === 'HTTP/1.0' || isIce(method, protocol) ? '1.0' : undefined;
    if (version === undefined) throw new Refusal('version');
    const head = { method, target, version, headers: this.#fields(), body: '' } as const;
    const hosts = valuesOf(head, 'host').length;
    if (hosts > 1 || (hosts === 0 && version === '1.1')) throw new Refusal(`${hosts} Host lines`);
    const framing = framingOf(head);
    this.head = head;
    return { ...head, body: framing === 'chunked' ? this.#chunks() : this.#exactly(framing) };
  }

  /** Reads a line up to CR LF. A bare CR or LF does not end a line, and is not allowed in one. */
  #line(): string {
    const end = this.#bytes.slice(this.#at).search(/[\r\n]/);
    if (end < 0) throw new Part();
    const at = this.#at + end;
    if (this.#bytes[at] === '\r' && at + 1 === this.#bytes.length) throw new Part();
    if (!this.#bytes.startsWith('\r\n', at)) throw new Refusal('an end of line');
    const line = this.#bytes.slice(this.#at, at);
    this.#at = at + 2;
    return line;
  }

  #fields(): (readonly [string, string])[] {
    const fields: (readonly [string, string])[] = [];
    for (let line = this.#line(); line !== ''; line = this.#line()) {
      const colon = line.indexOf(':');
      const [name, value] = [line.slice(0, Math.max(0, colon)), line.slice(colon + 1)];
      if (!TOKEN.test(name)) throw new Refusal('the name of a field'); // also refuses a folded line: it begins with a space
      if (!VALUE.test(value)) throw new Refusal('the value of a field');
      fields.push([name.toLowerCase(), value.replace(/^[\t ]+|[\t ]+$/g, '')]);
    }
    return fields;
  }

  #exactly(length: number): string {
    if (this.#bytes.length - this.#at < length) throw new Part();
    this.#at += length;
    return this.#bytes.slice(this.#at - length, this.#at);
  }

  #chunks(): string {
    let body = '';
    for (;;) {
      const [, digits = ''] = CHUNK.exec(this.#line()) ?? [];
      if (digits === '' || BigInt(`0x${digits}`) > LENGTH_MAX) throw new Refusal('the size of a chunk');
      const size = Number.parseInt(digits, 16);
      if (size === 0) break;
      body += this.#exactly(size);
      if (this.#bytes.length - this.#at >= 2 ? !this.#bytes.startsWith('\r\n', this.#at) : this.#startsWrong())
        throw new Refusal('the end of a chunk');
      body += this.#exactly(2) && '';
    }
    this.#fields(); // trailers
    return body;
  }

  #startsWrong(): boolean {
    const left = this.#bytes.slice(this.#at);
    return left !== '' && left !== '\r';
  }
}

/** The framing of the body by §6.3, without the repairs that §6.3 allows a server. */
function framingOf(head: ReadRequest): 'chunked' | number {
  const lengths = valuesOf(head, 'content-length');
  const codings = valuesOf(head, 'transfer-encoding').flatMap((value) => value.toLowerCase().split(/[\t ]*,[\t ]*/));
  if (codings.length > 0) {
    if (lengths.length > 0) throw new Refusal('Content-Length and Transfer-Encoding');
    if (head.version === '1.0') throw new Refusal('Transfer-Encoding in HTTP/1.0');
    // §6.1: the server decodes no other coding.
    if (codings.length > 1 || codings[0] !== 'chunked') throw new Refusal('a transfer coding');
    return 'chunked';
  }
  const [length, second] = lengths;
  if (second !== undefined) throw new Refusal('two Content-Length lines');
  if (length === undefined) return 0;
  if (!DIGITS.test(length) || BigInt(length) > LENGTH_MAX) throw new Refusal('Content-Length');
  return Number(length);
}
