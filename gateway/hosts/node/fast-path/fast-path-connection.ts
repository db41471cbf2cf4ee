import type { Socket } from 'node:net';
import { FastPathResponse } from './fast-path-response.ts';
import { type FastPathHead, readFastPathHead } from './read-head.ts';

/** If the rest of a body does not arrive this soon after its head, `node:http` takes over the connection. */
const REST_MS = 50;
/**
 * Maximum pipelined bytes that are kept during a response. Further bytes are read and dropped, and the connection
 * closes after the response. They are read, because a reset by the client is noticed only after all data before it was
 * read.
 */
const PIPELINED_MAX_BYTES = 64 * 1024;
/**
 * Maximum pipelined bytes that are dropped during a response. A client that sends more does not wait for its response,
 * so the connection is closed.
 */
const DROPPED_MAX_BYTES = 1024 * 1024;

interface FastPathHost {
  /** Answers a request. Undefined: `node:http` must answer it. */
  answer(head: FastPathHead, response: FastPathResponse): ConnectionTakeover | undefined;
  /** Passes the connection to `node:http`. The bytes that were already read from it are put back. */
  parse(socket: Socket): void;
  /** Handles a new connection on which nothing arrived for `idleMs`: sends an error and ends it. */
  late(socket: Socket): void;
  /** Handles a client that closed in the middle of a request: sends an error and ends the connection. */
  cut(socket: Socket): void;
  /** True if the next response is the last one of its connection. */
  readonly closing: boolean;
  readonly idleMs: number;
}

export interface ConnectionTakeover {
  /** Called if the client disconnected before the response was sent. */
  leave(): void;
}

/**
 * A connection that carries fast-path requests, one after another. When other bytes arrive, `node:http` takes over the
 * connection permanently.
 */
export class FastPathConnection {
  readonly #socket: Socket;
  readonly #host: FastPathHost;
  /** Bytes that were read and are not part of an accepted request. */
  #buffered: Buffer | undefined;
  #response: FastPathResponse | undefined;
  #taken: ConnectionTakeover | undefined;
  #rest: NodeJS.Timeout | undefined;
  #asked = false;
  /** Pipelined bytes that were discarded during a response. */
  #dropped = 0;
  /**
   * True if the last response was sent. Further input is discarded, because a part of a request could look like a
   * complete request.
   */
  #ended = false;

  constructor(socket: Socket, host: FastPathHost) {
    this.#socket = socket;
    this.#host = host;
    socket.setTimeout(host.idleMs);
    socket.on('data', this.#onData);
    socket.on('drain', this.#onDrain);
    socket.on('end', this.#onEnd);
    socket.on('timeout', this.#onTimeout);
    socket.on('error', ignore); // the event 'close' follows
    socket.on('close', this.#onClose);
  }

  /** The response that is not complete. */
  get response(): FastPathResponse | undefined {
    return this.#response;
  }

  /** True if a part of a request has arrived, or if a response is not complete. */
  get busy(): boolean {
    return this.#response !== undefined || this.#buffered !== undefined;
  }

  readonly #onData = (piece: Buffer) => {
    if (this.#ended) return;
    const bytes = this.#buffered === undefined ? piece : Buffer.concat([this.#buffered, piece]);
    if (this.#response !== undefined) {
      this.#hold(bytes);
      return;
    }
    const head = readFastPathHead(bytes);
    if (head === 'incomplete' && this.#buffered === undefined) {
      this.#buffered = bytes;
      this.#rest = setTimeout(() => this.#handOver(), REST_MS);
      return;
    }
    this.#buffered = bytes;
    clearTimeout(this.#rest);
    if (typeof head === 'string' || !this.#take(head)) this.#handOver();
  };

  #hold(bytes: Buffer): void {
    if (this.#dropped === 0 && bytes.length <= PIPELINED_MAX_BYTES) {
      this.#buffered = bytes;
      return;
    }
    this.#buffered = undefined;
    this.#dropped += bytes.length;
    if (this.#dropped > DROPPED_MAX_BYTES) this.#socket.destroy();
  }

  #take(head: FastPathHead): boolean {
    const response = new FastPathResponse(
      this.#socket,
      () => this.#host.closing,
      (last) => this.#onAnswered(last),
    );
    const taken = this.#host.answer(head, response);
    if (taken === undefined) return false;
    this.#buffered = undefined;
    this.#response = response;
    this.#taken = taken;
    this.#asked = true;
    return true;
  }

  #onAnswered(last: boolean): void {
    this.#response = undefined;
    this.#taken = undefined;
    if (last || this.#dropped > 0 || this.#host.closing) {
      this.#ended = true;
      this.#buffered = undefined;
      this.#socket.destroySoon();
    } else if (this.#buffered !== undefined) this.#handOver();
  }

  #handOver(): void {
    const socket = this.#socket;
    this.#forget();
    socket.setTimeout(0);
    socket.pause();
    if (this.#buffered !== undefined) socket.unshift(this.#buffered);
    this.#buffered = undefined;
    this.#host.parse(socket);
    socket.resume();
  }

  /** Refuses the connection: `tell` sends an error, and further bytes are discarded. */
  #refuse(tell: (socket: Socket) => void): void {
    const socket = this.#socket;
    this.#forget();
    socket.on('error', ignore);
    socket.on('timeout', () => socket.destroy());
    socket.resume();
    tell(socket);
  }

  #forget(): void {
    const socket = this.#socket;
    clearTimeout(this.#rest);
    socket.removeListener('data', this.#onData);
    socket.removeListener('drain', this.#onDrain);
    socket.removeListener('end', this.#onEnd);
    socket.removeListener('timeout', this.#onTimeout);
    socket.removeListener('error', ignore);
    socket.removeListener('close', this.#onClose);
  }

  readonly #onDrain = () => {
    this.#response?.emit('drain');
  };

  /**
   * Handles the client's end of the connection (FIN). As with `node:http`, bytes that were already written are still
   * sent, and nothing else.
   */
  readonly #onEnd = () => {
    if (this.#response === undefined && this.#buffered !== undefined) return this.#refuse(this.#host.cut);
    this.#leave();
    this.#socket.end();
  };

  readonly #onTimeout = () => {
    if (this.#response !== undefined) return;
    if (this.#asked) this.#socket.destroy();
    else this.#refuse(this.#host.late);
  };

  readonly #onClose = () => {
    clearTimeout(this.#rest);
    this.#leave();
  };

  #leave(): void {
    const [response, taken] = [this.#response, this.#taken];
    if (response === undefined) return;
    this.#response = undefined;
    this.#taken = undefined;
    taken?.leave();
    response.closed();
  }
}

function ignore(): void {}
