import { EventEmitter } from 'node:events';
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { HEADER_NAME } from '../../../../shared/text/http-head.ts';
import type { ResponseWriter } from '../response-writer.ts';

/** An idle connection is closed after this time. */
export const KEEP_ALIVE_MS = 15_000;
/**
 * Timeout that the response's `keep-alive` header states. It is shorter than KEEP_ALIVE_MS, so that a request that a
 * client sends just before this timeout arrives while the connection is open.
 */
export const KEEP_ALIVE_HINT_MS = 10_000;
/**
 * Pieces up to this size are copied together with their chunk framing, because writing one buffer to the socket costs
 * less than writing three.
 */
const COPY_MAX_BYTES = 16 * 1024;
/**
 * Characters that RFC 9110 §5.5 does not allow in a header value. Obsolete text (bytes from 0x80) is allowed, as in
 * `node:http`.
 */
const NOT_IN_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
const CLOSE = 'connection: close\r\n\r\n';
/**
 * Headers of a connection that stays open. Clients that respect the timeout do not send a request just as the
 * connection is closed.
 */
const KEEP_ALIVE = `connection: keep-alive\r\nkeep-alive: timeout=${KEEP_ALIVE_HINT_MS / 1000}\r\n\r\n`;
const CRLF = Buffer.from('\r\n');
const LAST_CHUNK = Buffer.from('0\r\n\r\n');

/**
 * The response to one fast-path request. Emits `drain`, and `close` if the connection ended before the response was
 * sent.
 */
export class FastPathResponse extends EventEmitter implements ResponseWriter {
  destroyed = false;
  readonly #socket: Socket;
  readonly #ended: (last: boolean) => void;
  /** True if the head was written. */
  headersSent = false;
  /** The head, until it is sent together with the first bytes of the body. */
  #head: string | undefined;
  #framing: 'chunked' | 'sized' | 'none' = 'sized';
  readonly #isClosing: () => boolean;
  #last = false;
  #finished = false;

  /**
   * @param isClosing true if the connection ends after this response; called when its head is written
   * @param ended called when the operating system has the whole response
   */
  constructor(socket: Socket, isClosing: () => boolean, ended: (last: boolean) => void) {
    super();
    this.#socket = socket;
    this.#isClosing = isClosing;
    this.#ended = ended;
  }

  writeHead(status: number, headers: Record<string, string>): void {
    this.headersSent = true;
    this.#last = this.#isClosing() || headers.connection === 'close';
    let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Unknown'}\r\n`;
    for (const name in headers) {
      const value = headers[name] ?? '';
      if (!HEADER_NAME.test(name) || NOT_IN_VALUE.test(value))
        throw new Error(`this header cannot be sent: ${JSON.stringify(name)}`);
      if (name !== 'connection') head += `${name}: ${value}\r\n`;
    }
    this.#framing =
      status === 204 || status === 304 ? 'none' : headers['content-length'] === undefined ? 'chunked' : 'sized';
    if (this.#framing === 'chunked') head += 'transfer-encoding: chunked\r\n';
    this.#head = `${head}date: ${dateOf(Date.now())}\r\n${this.#last ? CLOSE : KEEP_ALIVE}`;
  }

  flushHeaders(): void {
    if (this.#head !== undefined) this.#send(this.#takeHead());
  }

  write(bytes: Uint8Array): boolean {
    if (this.destroyed || this.#finished) return false;
    if (bytes.length === 0 || this.#framing === 'none') return true;
    if (this.#framing === 'sized') return this.#send(this.#takeHead(), bytes);
    const begin = `${this.#takeHead()}${bytes.length.toString(16)}\r\n`;
    return bytes.length > COPY_MAX_BYTES ? this.#send(begin, bytes, CRLF) : this.#send(joined(begin, bytes, CRLF));
  }

  end(body?: Uint8Array | string): void {
    if (this.destroyed || this.#finished) return;
    const bytes = typeof body === 'string' ? Buffer.from(body) : (body ?? new Uint8Array());
    if (this.#framing === 'chunked' && bytes.length > 0) this.write(bytes);
    this.#finished = true;
    const tail = this.#framing === 'chunked' ? LAST_CHUNK : this.#framing === 'sized' ? bytes : new Uint8Array();
    const out = () => {
      if (!this.destroyed) this.#ended(this.#last);
    };
    const head = this.#takeHead();
    if (tail.length <= COPY_MAX_BYTES) this.#socket.write(joined(head, tail), out);
    else {
      this.#socket.write(head, 'latin1');
      this.#socket.write(tail, out);
    }
    while (this.#socket.writableCorked > 0) this.#socket.uncork();
  }

  destroy(): void {
    this.closed();
    this.#socket.destroy();
  }

  /** Called when the connection has closed. */
  closed(): void {
    if (this.destroyed) return;
    this.destroyed = true;
    this.emit('close');
  }

  #takeHead(): string {
    const head = this.#head ?? '';
    this.#head = undefined;
    return head;
  }

  /** Collects the pieces of one turn of the event loop, so that they are sent in one system call. */
  #send(...pieces: (Uint8Array | string)[]): boolean {
    const socket = this.#socket;
    if (socket.writableCorked === 0) {
      socket.cork();
      process.nextTick(uncork, socket);
    }
    let free = true;
    for (const piece of pieces)
      if (piece.length > 0) free = typeof piece === 'string' ? socket.write(piece, 'latin1') : socket.write(piece);
    return free;
  }
}

function uncork(socket: Socket): void {
  if (socket.writableCorked > 0) socket.uncork();
}

function joined(head: string, ...parts: Uint8Array[]): Buffer {
  let length = head.length;
  for (const part of parts) length += part.length;
  const bytes = Buffer.allocUnsafe(length);
  let at = bytes.write(head, 0, 'latin1');
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

let dateSecond = 0;
let date = '';

/** The `date` header (RFC 9110 §5.6.7), formatted once a second. */
function dateOf(now: number): string {
  const second = Math.floor(now / 1000);
  if (second !== dateSecond) {
    dateSecond = second;
    date = new Date(now).toUTCString();
  }
  return date;
}
