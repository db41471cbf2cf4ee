/** The head of an answer whose body an outlet writes: how it is told from others, and what its client gets in its place. */

/** Head and body of such an answer together, which are held until they are complete: its first data has 64 KiB at most. */
export const MARKED_MAX_BYTES = 128 * 1024;

const HEAD_BEGIN = 'HTTP/1.1 ';
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
  /** For the client: the head, for a body in chunks, and the first chunk where there is one. */
  opening: Buffer;
  /** The head says that the connection ends behind this answer. */
  closes: boolean;
}

export type MarkerReading =
  | MarkedAnswer
  /** More of it has to be read; what is before `start` is not of it. */
  | { kind: 'incomplete'; start: number }
  /** It begins in an earlier read, or is no head at all. */
  | { kind: 'unmarked' }
  | { kind: 'broken' };

/** Reads the answer around `secret`, which must be in `bytes`. `opening` is a copy. */
export function readMarker(bytes: Buffer, secret: Buffer): MarkerReading {
  const at = bytes.indexOf(secret);
  const start = at < 0 ? -1 : bytes.lastIndexOf(HEAD_BEGIN, at);
  if (start < 0) return { kind: 'unmarked' };
  const headEnd = bytes.indexOf('\r\n\r\n', start);
  if (headEnd < 0) return bytes.length - start > MARKED_MAX_BYTES ? { kind: 'broken' } : { kind: 'incomplete', start };
  if (headEnd < at) return { kind: 'unmarked' };
  const kept: string[] = [];
  let marker: RegExpExecArray | undefined;
  let contentLength: number | undefined;
  let closes = false;
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
  const head = Buffer.from(`${kept.join('\r\n')}\r\ntransfer-encoding: chunked\r\n\r\n`, 'latin1');
  const first = bytes.subarray(body, body + length);
  const opening = length === 0 ? head : Buffer.concat([head, chunkOf(first)]);
  return { kind: 'marked', start, end, session, stream, opening, closes };
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
