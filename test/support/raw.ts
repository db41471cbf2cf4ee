/** HTTP without a library's restrictions: exact bytes, exact headers, digests of large bodies, and raw sockets. */
import { createHash } from 'node:crypto';
import { request as httpRequest, type IncomingHttpHeaders, type OutgoingHttpHeaders } from 'node:http';
import { connect, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { patternBytes } from './engine/words.ts';
import { patience } from './patience.ts';
import { eventually } from './processes.ts';

export interface RawAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
  /** SHA-256 of the body, in hex. */
  sha256: string;
  bytes: number;
  /** False if the connection ended before the body did. */
  complete: boolean;
  /** Arrival of each piece of the body, in ms since the request was sent. */
  arrivals: number[];
}

/** Largest body that is kept completely; longer ones have only a digest. */
const KEPT_BYTES = 64 * 1024 * 1024;

/** Sends a request and reads the response as bytes. Never throws for a response that breaks off. */
export function raw(
  url: string,
  options: {
    method?: string;
    headers?: OutgoingHttpHeaders;
    body?: Buffer | string | Readable;
    withinMs?: number;
  } = {},
): Promise<RawAnswer> {
  return new Promise((resolve, reject) => {
    const withinMs = patience(options.withinMs ?? 10_000);
    const sentAt = performance.now();
    const method = options.method ?? (options.body === undefined ? 'GET' : 'POST');
    const request = httpRequest(url, { method, headers: options.headers ?? {}, agent: false });
    const timer = setTimeout(() => request.destroy(new Error(`no whole answer within ${withinMs} ms`)), withinMs);
    request.once('error', (error) => {
      clearTimeout(timer);
      reject(error);
    });
    request.once('response', (response) => {
      const hash = createHash('sha256');
      const kept: Buffer[] = [];
      const arrivals: number[] = [];
      let bytes = 0;
      response.on('data', (piece: Buffer) => {
        hash.update(piece);
        if (bytes < KEPT_BYTES) kept.push(piece);
        bytes += piece.length;
        arrivals.push(performance.now() - sentAt);
      });
      response.on('error', () => undefined);
      response.once('close', () => {
        clearTimeout(timer);
        const { headers, complete, statusCode: status = 0 } = response;
        resolve({ status, headers, body: Buffer.concat(kept), sha256: hash.digest('hex'), bytes, complete, arrivals });
      });
    });
    if (options.body instanceof Readable) options.body.pipe(request);
    else request.end(options.body);
  });
}

/** A body of `size` bytes of the pattern, generated while it is read. */
export function patternStream(size: number, blockBytes = 64 * 1024): Readable {
  let at = 0;
  return new Readable({
    highWaterMark: blockBytes,
    read() {
      if (at >= size) return void this.push(null);
      const length = Math.min(blockBytes, size - at);
      at += length;
      this.push(patternBytes(at - length, length));
    },
  });
}

/** The digest of a body of `size` pattern bytes. */
export function patternSha256(size: number): string {
  const hash = createHash('sha256');
  for (let at = 0; at < size; at += 65_536) hash.update(patternBytes(at, Math.min(65_536, size - at)));
  return hash.digest('hex');
}

/** A connected TCP socket to the host of `url`. */
export function dial(url: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = connect({ host: hostname, port: Number(port) }, () => resolve(socket));
    socket.once('error', reject);
  });
}

/** Sends data until the peer accepts no more. */
export async function sendUntilHeld(socket: Socket): Promise<void> {
  const piece = Buffer.alloc(64 * 1024, 'x');
  let sent = 0;
  const push = () => {
    while (socket.write(piece)) sent++;
    sent++;
  };
  socket.on('drain', push);
  push();
  let [last, still] = [-1, 0];
  await eventually('it is held', 10_000, () => {
    still = sent === last ? still + 1 : 0;
    last = sent;
    return still === 10 ? true : undefined;
  });
}

/** The bytes of a POST with a JSON body, for sockets. */
export function postBytes(url: string, headers: Record<string, string>, body: unknown): string {
  const { host, pathname } = new URL(url);
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const lines = Object.entries({
    host,
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(text)),
    ...headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `POST ${pathname} HTTP/1.1\r\n${lines.join('')}\r\n${text}`;
}
