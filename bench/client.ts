/** A cheap client: one keep-alive connection, one request at a time, with timestamps taken as the bytes arrive. */
import { connect, type Socket } from 'node:net';

export interface Timing {
  status: number;
  /** Milliseconds from the request to the response's headers, to the first byte of its body, and to the last byte. */
  headMs: number;
  firstMs: number;
  endMs: number;
  bodyBytes: number;
  /** True if the response had a body and ended as its headers announced. */
  complete: boolean;
}

const HEAD_END = Buffer.from('\r\n\r\n');
const LAST_CHUNK = Buffer.from('\r\n0\r\n\r\n');
const NO_CHUNKS = '0\r\n\r\n'.length;
const LIMIT_MS = 300_000;

export interface Target {
  /** Origin, with the prefix of all paths, if any. */
  url: string;
  key?: string;
  /** Headers that the target needs in addition to the key. */
  headers?: Record<string, string>;
}

/** The bytes of a POST; created once, sent often. */
export function post(target: Target, path: string, body: unknown, more: Record<string, string> = {}): Buffer {
  const text = JSON.stringify(body);
  const headers = {
    host: new URL(target.url).host,
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(text)),
    ...(target.key === undefined ? {} : { authorization: `Bearer ${target.key}` }),
    ...target.headers,
    ...more,
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const prefix = new URL(target.url).pathname.replace(/\/$/, '');
  return Buffer.from(`POST ${prefix}${path} HTTP/1.1\r\n${lines.join('')}\r\n${text}`);
}

export class Client {
  readonly #target: Target;
  readonly #limitMs: number;
  #socket: Socket | undefined;

  /** A request that takes longer than `limitMs` is given up. */
  constructor(target: Target, limitMs = LIMIT_MS) {
    this.#target = target;
    this.#limitMs = limitMs;
  }

  async #connected(): Promise<Socket> {
    if (this.#socket !== undefined && !this.#socket.destroyed && this.#socket.writable) return this.#socket;
    const { hostname, port } = new URL(this.#target.url);
    const socket = connect({ host: hostname, port: Number(port), noDelay: true });
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', reject);
    });
    socket.removeAllListeners('error');
    socket.on('error', () => socket.destroy());
    this.#socket = socket;
    return socket;
  }

  open(): Promise<unknown> {
    return this.#connected();
  }

  /** Sends one request and reads its response; `onBody` receives each piece, including chunk framing. */
  async ask(request: Buffer, onBody: (piece: Buffer) => void = () => undefined): Promise<Timing> {
    const socket = await this.#connected();
    return new Promise((resolve) => {
      const reader = new AnswerReader(onBody);
      const start = performance.now();
      const finish = () => {
        clearTimeout(timer);
        socket.off('data', take).off('close', finish);
        resolve(reader.timing(start));
      };
      const take = (piece: Buffer) => {
        if (reader.take(piece)) finish();
      };
      const timer = setTimeout(() => socket.destroy(), this.#limitMs);
      socket.on('data', take).once('close', finish);
      socket.write(request);
    });
  }

  close(): void {
    this.#socket?.destroy();
  }
}

class AnswerReader {
  readonly #onBody: (piece: Buffer) => void;
  #head: Buffer | undefined = Buffer.alloc(0);
  #status = 0;
  #length = -1;
  #bodyBytes = 0;
  /** The end of the head comes before the first chunk. */
  #tail = Buffer.from('\r\n');
  #headAt = Number.NaN;
  #firstAt = Number.NaN;
  #endAt = Number.NaN;
  #complete = false;

  constructor(onBody: (piece: Buffer) => void) {
    this.#onBody = onBody;
  }

  /** True when the response is complete. */
  take(piece: Buffer): boolean {
    if (this.#head === undefined) return this.#body(piece);
    this.#head = Buffer.concat([this.#head, piece]);
    const end = this.#head.indexOf(HEAD_END);
    if (end < 0) return false;
    const head = this.#head.toString('latin1', 0, end);
    const rest = this.#head.subarray(end + HEAD_END.length);
    this.#head = undefined;
    this.#headAt = performance.now();
    this.#status = Number(head.slice(9, 12));
    this.#length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? -1);
    if (this.#length === 0) return this.#whole();
    return rest.length > 0 && this.#body(rest);
  }

  #body(piece: Buffer): boolean {
    if (this.#bodyBytes === 0) this.#firstAt = performance.now();
    this.#bodyBytes += piece.length;
    this.#onBody(piece);
    if (this.#length >= 0) return this.#bodyBytes >= this.#length && this.#whole();
    this.#tail = Buffer.concat([this.#tail, piece.subarray(-LAST_CHUNK.length)]).subarray(-LAST_CHUNK.length);
    return this.#tail.equals(LAST_CHUNK) && this.#whole();
  }

  #whole(): true {
    this.#complete = this.#length > 0 || this.#bodyBytes > NO_CHUNKS;
    this.#endAt = performance.now();
    return true;
  }

  timing(start: number): Timing {
    return {
      status: this.#status,
      headMs: this.#headAt - start,
      firstMs: this.#firstAt - start,
      endMs: this.#endAt - start,
      bodyBytes: this.#bodyBytes,
      complete: this.#complete,
    };
  }
}
