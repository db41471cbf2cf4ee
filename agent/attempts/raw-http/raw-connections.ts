import { connect, type Socket } from 'node:net';
import { errorText } from '../../../shared/text/error-text.ts';
import { type ResponseHead, ResponseReader, type ResponseSink } from './response-reader.ts';

/** A port of this machine accepts a connection immediately, unless the engine's queue of connections is full. */
const CONNECT_MS = 10_000;

/** Larger bodies are written separately from the head, so that they are not copied. */
const JOINED_MAX_BYTES = 16 * 1024;

const CLOSED = 'the engine’s address has changed, or the agent stops';
const CLOSED_BY_ENGINE = 'the engine closed the connection';

/** A request, and the receiver of its response. Exactly one of `onEnd` and `onError` is called, unless it is aborted. */
export interface RawRequest {
  readonly head: string;
  readonly body: Buffer;
  onHead(head: ResponseHead): void;
  onData(bytes: Buffer): void;
  onEnd(): void;
  onError(failure: RawFailure): void;
}

export interface RawFailure {
  message: string;
  /** False if no connection was made. */
  connected: boolean;
  /**
   * True if the connection had carried another request before, and the engine closed it without having read this one.
   */
  stale: boolean;
}

/** A request in progress. */
export interface RawExchange {
  pause(): void;
  resume(): void;
  abort(): void;
}

const NO_EXCHANGE: RawExchange = { pause: () => {}, resume: () => {}, abort: () => {} };

/**
 * Connections to an engine on this machine, over plain TCP. Each carries one request at a time, so their number is at
 * most the number of concurrent requests, which the owner limits. Idle connections are used for at most `keepMs`.
 */
export class RawConnections {
  readonly #address: { host: string; port: number };
  readonly #keepMs: number;
  readonly #all = new Set<RawConnection>();
  /** Connections without a request; the last one was used last. */
  readonly #idle: RawConnection[] = [];
  #closed = false;

  constructor(address: { host: string; port: number }, keepMs: number) {
    this.#address = address;
    this.#keepMs = keepMs;
  }

  /** Number of open connections. */
  get size(): number {
    return this.#all.size;
  }

  /** `fresh`: on a new connection, because idle ones may be closed. After `close`, the request fails. */
  send(request: RawRequest, fresh = false): RawExchange {
    if (this.#closed) {
      queueMicrotask(() => request.onError({ message: CLOSED, connected: true, stale: false }));
      return NO_EXCHANGE;
    }
    const connection = (fresh ? undefined : this.#take()) ?? this.#open();
    connection.send(request);
    return connection.exchange(request);
  }

  /** Returns the idle connection that was used last, so that those above the need expire. */
  #take(): RawConnection | undefined {
    const now = performance.now();
    for (let last = this.#idle.pop(); last !== undefined; last = this.#idle.pop()) {
      if (last.usableAt(now)) return last;
      last.close();
    }
    return undefined;
  }

  #open(): RawConnection {
    const made: RawConnection = new RawConnection(connect({ ...this.#address, allowHalfOpen: true }), this.#keepMs, {
      idle: () => {
        this.#expire();
        this.#idle.push(made);
      },
      closed: () => {
        this.#all.delete(made);
        const at = this.#idle.indexOf(made);
        if (at >= 0) this.#idle.splice(at, 1);
      },
    });
    this.#all.add(made);
    return made;
  }

  /** Closes connections that have been idle for too long. The first one is the oldest. */
  #expire(): void {
    const now = performance.now();
    while (this.#idle[0] !== undefined && !this.#idle[0].usableAt(now)) this.#idle.shift()?.close();
  }

  close(): void {
    this.#closed = true;
    for (const connection of [...this.#all]) connection.close(CLOSED);
  }
}

interface ConnectionEvents {
  /** The response has ended, and the connection can carry another request. */
  idle(): void;
  closed(): void;
}

class RawConnection implements ResponseSink {
  readonly #socket: Socket;
  readonly #events: ConnectionEvents;
  readonly #reader: ResponseReader;
  #request: RawRequest | undefined;
  /** A request with a complete response, while the bytes behind the response are read. */
  #ended: { request: RawRequest; keepMs: number | undefined } | undefined;
  #connected = false;
  /** Number of requests so far, including the current one. */
  #requests = 0;
  /** Until when the connection may be used again, by `performance.now()`. */
  #usableUntil = 0;
  #closed = false;

  constructor(socket: Socket, keepMs: number, events: ConnectionEvents) {
    this.#socket = socket;
    this.#events = events;
    this.#reader = new ResponseReader(this, keepMs);
    socket.setNoDelay(true);
    socket.setTimeout(CONNECT_MS, () => this.close('the engine does not accept the connection'));
    socket.on('connect', () => {
      this.#connected = true;
      socket.setTimeout(0);
    });
    socket.on('data', (bytes: Buffer) => this.#read(() => this.#reader.push(bytes)));
    socket.on('end', () => {
      this.#read(() => this.#reader.close());
      if (this.#isUnanswered) this.#closeUnanswered();
      else this.close(CLOSED_BY_ENGINE);
    });
    // The system resets a connection if the engine closed it with bytes of the request unread.
    socket.on('error', (error) => this.close(error.message, true));
    socket.on('close', () => this.close(CLOSED_BY_ENGINE));
  }

  /** True if another response came on this connection before, and nothing of the response to this request. */
  get #isUnanswered(): boolean {
    return this.#request !== undefined && this.#requests > 1 && !this.#reader.answered;
  }

  /**
   * The engine closed the connection, either before the request arrived, or after it read the request. In the first case
   * the system has reset the connection when the request arrived, so that a further write fails. In the second the engine
   * may have begun to work, so the request must not be repeated. Servers ignore an empty line (RFC 9112 §2.2).
   */
  #closeUnanswered(): void {
    if (this.#socket.writableLength > 0) return this.close(CLOSED_BY_ENGINE, true); // not all of it was sent
    this.#socket.write('\r\n', (error) => this.close(CLOSED_BY_ENGINE, error instanceof Error));
  }

  usableAt(now: number): boolean {
    return !this.#closed && now < this.#usableUntil;
  }

  send(request: RawRequest): void {
    const { head, body } = request;
    this.#request = request;
    this.#requests++;
    this.#reader.expect();
    if (body.length <= JOINED_MAX_BYTES) {
      const bytes = Buffer.allocUnsafe(head.length + body.length);
      bytes.write(head, 'latin1');
      body.copy(bytes, head.length);
      this.#socket.write(bytes);
      return;
    }
    this.#socket.cork();
    this.#socket.write(head, 'latin1');
    this.#socket.write(body);
    this.#socket.uncork();
  }

  /** Controls `request`, as long as it is this connection's current request. */
  exchange(request: RawRequest): RawExchange {
    const current = (act: () => void) => () => {
      if (this.#request === request) act();
    };
    return {
      pause: current(() => this.#socket.pause()),
      resume: current(() => this.#socket.resume()),
      abort: current(() => {
        this.#request = undefined;
        this.close();
      }),
    };
  }

  #read(read: () => void): void {
    if (this.#closed) return;
    try {
      read();
    } catch (error) {
      this.close(errorText(error));
    }
    this.#settle();
  }

  onHead(head: ResponseHead): void {
    this.#request?.onHead(head);
  }

  onData(bytes: Buffer): void {
    this.#request?.onData(bytes);
  }

  onEnd(keepMs: number | undefined): void {
    if (this.#request !== undefined) this.#ended = { request: this.#request, keepMs };
    this.#request = undefined;
  }

  /**
   * Ends a response after all bytes that arrived with it were read. If bytes followed it, they must not become the
   * response to the next request, so the connection is closed then.
   */
  #settle(): void {
    const ended = this.#ended;
    if (ended === undefined) return;
    this.#ended = undefined;
    // If the engine answered before it had read the request, the rest of the request is still being written.
    if (ended.keepMs !== undefined && this.#socket.writableLength === 0 && !this.#closed) {
      this.#usableUntil = performance.now() + ended.keepMs;
      this.#socket.resume();
      this.#events.idle();
    } else this.close();
    ended.request.onEnd();
  }

  /** Idempotent. `message`: why a current request fails. `isUnread`: true if the engine has not read all of it. */
  close(message = '', isUnread = false): void {
    if (this.#closed) return;
    this.#closed = true;
    const request = this.#request;
    const stale = isUnread && this.#isUnanswered;
    this.#request = undefined;
    this.#socket.destroy();
    this.#events.closed();
    request?.onError({ message, connected: this.#connected, stale });
  }
}
