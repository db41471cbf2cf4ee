/** A link to another process: calls its objects, and learns which agents are connected to it. */
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import { waitClock } from '../../../platform/wait-clock.ts';
import { withUpgrade } from '../node-sockets.ts';
import type { ClusterKey } from './cluster-key.ts';
import { encodeLinkFrame, LinkFrameReader } from './link-frames.ts';
import {
  CALLS_MAX,
  CALLS_PATH,
  FETCH_PATH,
  fetchReplySchema,
  type Hello,
  helloSchema,
  type LinkCall,
  LinkError,
  type LinkFetch,
  type LinkFetchReply,
  MovedError,
  replySchema,
} from './link-messages.ts';
import { LINK_SESSION, SESSION_WINDOW_BYTES } from './link-server.ts';
import { joinSocket } from './link-sockets.ts';
import { bodyOf, readHead, writeBody } from './link-streams.ts';
import { clientTls } from './link-tls.ts';

/** A process that answers no ping for this time cannot be reached. */
const SILENT_MS = 5_000;
const PING_MS = 2_000;
/** If more bytes wait for the other process, calls are refused. */
const UNSENT_MAX_BYTES = 16 * 1024 * 1024;

interface LinkOptions {
  key: ClusterKey;
  /** `HOST:PORT` of the other process. */
  address: string;
  hello: Hello;
  /** Incarnation of the process that is expected there. */
  incarnation: string;
  /**
   * Called once when the link has ended. `ended`: the process at the address has ended, too. `sessions`: agents that were
   * connected to it.
   */
  closed(ended: boolean, sessions: readonly string[]): void;
  /** Called when the link can be used. */
  opened(): void;
  /** Called with all agents of the other process, after the link was opened. */
  listed(sessions: readonly string[]): void;
  /** Called when agents have left the other process. */
  left(sessions: readonly string[]): void;
}

export class LinkClient {
  readonly #options: LinkOptions;
  readonly #session: ClientHttp2Session;
  readonly #calls: ClientHttp2Stream;
  readonly #reader = new LinkFrameReader();
  /** Calls without a reply, at most CALLS_MAX. */
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #tunnels = new Set<string>();
  readonly #pings: NodeJS.Timeout;
  #lastId = 0;
  #streams = 0;
  #isOpen = false;
  #isClosed = false;
  /** Ends the wait for the answer to a ping. */
  #heard: () => void;

  constructor(options: LinkOptions) {
    this.#options = options;
    const session = connect(`https://${options.address}`, { ...LINK_SESSION, ...clientTls(options.key) });
    this.#session = session;
    session.on('error', (error: NodeJS.ErrnoException) => this.#close(error.code === 'ECONNREFUSED'));
    session.on('close', () => this.#close(false));
    session.on('connect', () => session.setLocalWindowSize(SESSION_WINDOW_BYTES));
    this.#calls = session.request({ ':method': 'POST', ':path': CALLS_PATH }, { endStream: false });
    this.#calls.on('error', () => {}); // the session's event follows
    this.#calls.on('close', () => session.destroy()); // the session's event says why
    this.#calls.on('data', (bytes: Buffer) => this.#onData(bytes));
    this.#calls.write(encodeLinkFrame(options.hello));
    this.#heard = waitClock.after(SILENT_MS, () => this.close());
    this.#pings = setInterval(() => this.#ping(), PING_MS);
    this.#pings.unref();
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  get incarnation(): string {
    return this.#options.incarnation;
  }

  /** Requests on their way to the other process. */
  get streams(): number {
    return this.#streams;
  }

  /** True if the session's agent is connected to the other process. */
  hasTunnel(session: string): boolean {
    return this.#isOpen && this.#tunnels.has(session);
  }

  /**
   * Calls an object of the other process.
   * @throws MovedError, as a rejection, if the process does not own it; LinkError if the call may have happened; the
   * object's error
   */
  call(call: Omit<LinkCall, 'id'>): Promise<unknown> {
    if (!this.#isOpen) return Promise.reject(new MovedError('the link is closed'));
    if (this.#waiting.size >= CALLS_MAX || this.#calls.writableLength > UNSENT_MAX_BYTES)
      return Promise.reject(new LinkError('too many calls wait for another process', { overloaded: true }));
    const id = ++this.#lastId;
    const frame = encodeLinkFrame({ id, ...call });
    const waiting = Promise.withResolvers<unknown>();
    this.#waiting.set(id, waiting);
    this.#calls.write(frame);
    return waiting.promise;
  }

  async fetch(className: string, name: string, request: Request): Promise<Response> {
    if (!this.#isOpen) throw new MovedError('the link is closed');
    if (this.#streams >= CALLS_MAX) throw new LinkError('too many streams to another process', { overloaded: true });
    const { url, method, headers, body, signal } = request;
    signal.throwIfAborted();
    const stream = this.#session.request({ ':method': 'POST', ':path': FETCH_PATH }, { endStream: false });
    this.#streams++;
    const onAbort = () => stream.close(constants.NGHTTP2_CANCEL);
    signal.addEventListener('abort', onAbort);
    stream.on('error', () => {}); // the event 'close' follows
    stream.on('close', () => {
      this.#streams--;
      signal.removeEventListener('abort', onAbort);
    });
    const isUpgrade = headers.get('upgrade') === 'websocket';
    const head: LinkFetch = { className, name, url, method, headers: [...headers], hasBody: body !== null };
    stream.write(encodeLinkFrame(head));
    if (!isUpgrade) neverRejects(writeBody(body, stream));
    const reply = await readReply(stream);
    // Then no object reads the rest of the request, which would wait in the stream for ever.
    if (reply.kind === 'moved' || reply.kind === 'error') stream.close(constants.NGHTTP2_CANCEL);
    switch (reply.kind) {
      case 'response':
        return new Response(reply.hasBody ? bodyOf(stream, 'response') : null, {
          status: reply.status,
          headers: reply.headers,
        });
      case 'socket':
        return withSocket(stream, reply.headers);
      case 'moved':
        throw new MovedError('the object has another owner');
      case 'error':
        throw new LinkError(reply.message, { overloaded: reply.overloaded });
    }
  }

  close(): void {
    this.#session.destroy();
    this.#close(false);
  }

  #ping(): void {
    if (this.#session.destroyed || this.#session.connecting) return;
    this.#session.ping(() => this.#listen());
  }

  /** After a pause of this process, answers may wait in its buffers: the wait is measured by `waitClock`. */
  #listen(): void {
    this.#heard();
    if (!this.#isClosed) this.#heard = waitClock.after(SILENT_MS, () => this.close());
  }

  #onData(bytes: Buffer): void {
    try {
      this.#reader.add(bytes);
      for (let next = this.#reader.next(); next !== undefined; next = this.#reader.next()) {
        if (this.#isOpen) this.#onReply(next.value);
        else this.#onHello(next.value);
      }
    } catch {
      this.close();
    }
  }

  #onHello(value: unknown): void {
    const { incarnation } = helloSchema.parse(value);
    // Another incarnation at the same address: the former one has ended.
    if (incarnation !== this.#options.incarnation) {
      this.#session.destroy();
      return this.#close(true);
    }
    this.#isOpen = true;
    this.#options.opened();
  }

  #onReply(value: unknown): void {
    const reply = replySchema.parse(value);
    if (reply.kind === 'tunnels') {
      if (reply.all) this.#tunnels.clear();
      for (const session of reply.opened) this.#tunnels.add(session);
      for (const session of reply.closed) this.#tunnels.delete(session);
      if (reply.all) this.#options.listed(reply.opened);
      return this.#options.left(reply.closed);
    }
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    switch (reply.kind) {
      case 'result':
        return waiting?.resolve(reply.value);
      case 'moved':
        return waiting?.reject(new MovedError('the object has another owner', { inDoubt: reply.inDoubt === true }));
      case 'error':
        return waiting?.reject(new LinkError(reply.message, { overloaded: reply.overloaded }));
    }
  }

  #close(ended: boolean): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#isOpen = false;
    clearInterval(this.#pings);
    this.#heard();
    for (const { reject } of this.#waiting.values()) reject(new LinkError('the link to another process broke'));
    this.#waiting.clear();
    const sessions = [...this.#tunnels];
    this.#tunnels.clear();
    this.#options.closed(ended, sessions);
  }
}

/** @throws Error, as a rejection, if the stream ends or breaks before a valid reply; then the stream is reset */
async function readReply(stream: ClientHttp2Stream): Promise<LinkFetchReply> {
  try {
    return fetchReplySchema.parse(await readHead(stream));
  } catch (error) {
    stream.close(constants.NGHTTP2_CANCEL);
    throw error;
  }
}

/** A response to an upgrade: the client's WebSocket will be connected with the stream. */
function withSocket(stream: ClientHttp2Stream, headers: readonly [string, string][]): Response {
  let isAttached = false;
  return withUpgrade(new Response(null, { status: 200 }), {
    headers: Object.fromEntries(headers),
    socket: {
      attach: (connection) => {
        isAttached = true;
        joinSocket(connection, stream);
      },
      settle: () => {
        if (!isAttached) stream.close(constants.NGHTTP2_CANCEL);
      },
    },
  });
}
