/** The head of an answer whose body an outlet writes: how it is told from others, and what its client gets in its place. */

/** Head and body of such an answer together, which are held until they are complete: its first data has 64 KiB at most. */
export const MARKED_MAX_BYTES = 128 * 1024;

const HEAD_BEGIN = 'HTTP/1.';
const MARKER = /^x-otela-outlet:[ \t]*[0-9a-f]{32} ([a-z2-7]{26}) (\d{1,15}) (\d{1,6})[ \t]*$/i;
const CONTENT_LENGTH = /^content-length:[ \t]*(\d{1,15})[ \t]*$/i;
const CONNECTION_CLOSE = /^connection:[ \t]*close[ \t]*$/i;

export interface MarkedAnswer {
  kind: 'marked';
  /** Where it begins and ends in what was read. */
  start: number;
  end: number;
  session: string;
  stream: number;
  /** For the client: the head, and the first data as its body begins. */
  opening: Buffer;
  /** The body goes in chunks; to a client of HTTP/1.0 it is what comes until the connection ends (RFC 9112 §6.3). */
  chunked: boolean;
  /** The connection ends behind this answer. */
  closes: boolean;
}

type MarkerReading =
  | MarkedAnswer
  /** More of it has to be read; what is before `start` is not of it. */
  | { kind: 'incomplete'; start: number }
  | { kind: 'unmarked' }
  /** There is a mark and no answer that it belongs to, or not all of it: it must not go on. */
  | { kind: 'broken' };

/** So much of a secret may have gone by with an earlier read; with more at the end of one, that end is kept. */
const PASSED_MAX = 7;

/** What marks answers, and how it is found. Only who reads what workerd says sees it; nothing that has it in it goes on to a client. */
export class Mark {
  readonly secret: Buffer;
  readonly #begin: Buffer;
  readonly #rest: Buffer;

  constructor(secret: string) {
    this.secret = Buffer.from(secret);
    this.#begin = this.secret.subarray(0, PASSED_MAX + 1);
    this.#rest = this.secret.subarray(PASSED_MAX);
  }

  /** All of the secret, or what may become it. */
  isIn(chunk: Buffer): boolean {
    return chunk.indexOf(this.#rest) >= 0 || this.#cutAt(chunk) >= 0;
  }

  /** Where the end of `chunk` begins the secret; -1: it does not. */
  #cutAt(chunk: Buffer): number {
    const at = chunk.indexOf(this.#begin, Math.max(0, chunk.length - this.secret.length + 1));
    if (at < 0) return -1;
    return this.secret.subarray(0, chunk.length - at).equals(chunk.subarray(at)) ? at : -1;
  }

  /** Reads the answer around the secret. What it gives are copies. */
  read(bytes: Buffer): MarkerReading {
    const at = bytes.indexOf(this.secret);
    if (at >= 0) {
      const reading = readAround(bytes, at);
      // A second time, where it is no marker: what is for the client must not have it, whoever wrote it there.
      return reading.kind === 'marked' && reading.opening.includes(this.secret) ? { kind: 'broken' } : reading;
    }
    if (bytes.indexOf(this.#rest) >= 0) return { kind: 'broken' };
    const cut = this.#cutAt(bytes);
    if (cut < 0) return { kind: 'unmarked' };
    const head = bytes.lastIndexOf(HEAD_BEGIN, cut);
    return { kind: 'incomplete', start: head >= 0 && cut - head < MARKED_MAX_BYTES ? head : cut };
  }
}

function readAround(bytes: Buffer, at: number): MarkerReading {
  const start = bytes.lastIndexOf(HEAD_BEGIN, at);
  const headEnd = bytes.indexOf('\r\n\r\n', Math.max(0, start));
  if (start < 0 || (headEnd >= 0 && headEnd < at)) return { kind: 'broken' };
  if (headEnd < 0) return bytes.length - start > MARKED_MAX_BYTES ? { kind: 'broken' } : { kind: 'incomplete', start };
  const kept: string[] = [];
  let marker: RegExpExecArray | undefined;
  let contentLength: number | undefined;
  const chunked = !bytes.toString('latin1', start, start + 8).endsWith('1.0');
  let closes = !chunked;
  for (const line of bytes.toString('latin1', start, headEnd).split('\r\n')) {
    const [marked, sized] = [MARKER.exec(line), CONTENT_LENGTH.exec(line)];
    if (marked !== null) marker = marked;
    else if (sized !== null) contentLength = Number(sized[1]);
    else kept.push(line);
    closes ||= CONNECTION_CLOSE.test(line);
  }
  if (marker === undefined || contentLength === undefined) return { kind: 'broken' };
  const [session = '', stream, length] = [marker[1], Number(marker[2]), Number(marker[3])];
  const body = headEnd + 4;
  const end = body + contentLength;
  if (length > contentLength || end - start > MARKED_MAX_BYTES) return { kind: 'broken' };
  if (bytes.length < end) return { kind: 'incomplete', start };
  const coding = chunked ? 'transfer-encoding: chunked\r\n' : '';
  const head = Buffer.from(`${kept.join('\r\n')}\r\n${coding}\r\n`, 'latin1');
  const first = bytes.subarray(body, body + length);
  const opening = length === 0 ? head : Buffer.concat([head, chunked ? chunkOf(first) : first]);
  return { kind: 'marked', start, end, session, stream, opening, chunked, closes };
}

/** RFC 9112 §7.1. `bytes` must not be empty: an empty chunk is the last one. */
export function chunkOf(bytes: Uint8Array): Buffer {
  const size = bytes.length.toString(16);
  const chunk = Buffer.allocUnsafe(size.length + bytes.length + 4);
  let at = chunk.write(`${size}\r\n`, 'latin1');
  chunk.set(bytes, at);
  at += bytes.length;
  chunk.write('\r\n', at, 'latin1');
  return chunk;
}
