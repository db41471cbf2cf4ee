/** Accepts links of other processes, and calls objects of this process for them. */
import {
  constants,
  createSecureServer,
  type Http2SecureServer,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import { errorText } from '../../../../shared/text/error-text.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import { upgradeOf } from '../node-sockets.ts';
import type { ClusterKey } from './cluster-key.ts';
import { encodeLinkFrame, LinkFrameReader } from './link-frames.ts';
import {
  CALLS_MAX,
  CALLS_PATH,
  callSchema,
  FETCH_PATH,
  fetchSchema,
  type Hello,
  helloSchema,
  isOverloaded,
  type LinkCall,
  type LinkFetchReply,
  type LinkReply,
  MovedError,
} from './link-messages.ts';
import { LinkedConnection } from './link-sockets.ts';
import { bodyOf, readHead, writeBody } from './link-streams.ts';
import { serverTls } from './link-tls.ts';

/** A connection that has not proved the key ends after this time. The number of connections is bounded, too. */
const HANDSHAKE_MS = 2_000;
const CONNECTIONS_MAX = 256;
/** Maximum bytes of a session's streams that wait in memory: all streams with full windows. */
const SESSION_MEMORY_MIB = 1_024;
const STREAM_WINDOW_BYTES = 64 * 1024;
export const SESSION_WINDOW_BYTES = CALLS_MAX * STREAM_WINDOW_BYTES;
export const LINK_SETTINGS = { initialWindowSize: STREAM_WINDOW_BYTES, maxConcurrentStreams: CALLS_MAX };
export const LINK_SESSION = { settings: LINK_SETTINGS, maxSessionMemory: SESSION_MEMORY_MIB };

interface LinkServerOptions {
  key: ClusterKey;
  hello: Hello;
  /** Sessions of agents that are connected to this process. */
  tunnels(): string[];
  /** @throws MovedError, as a rejection, if this process does not own the object */
  call(call: LinkCall): Promise<unknown>;
  fetch(className: string, name: string, request: Request): Promise<Response>;
  log(line: string): void;
}

export class LinkServer {
  readonly #options: LinkServerOptions;
  readonly #server: Http2SecureServer;
  readonly #sessions = new Set<ServerHttp2Session>();
  /** Streams to which news is written; one for each link. */
  readonly #links = new Set<ServerHttp2Stream>();

  constructor(options: LinkServerOptions) {
    this.#options = options;
    const server = createSecureServer({ ...LINK_SESSION, ...serverTls(options.key), handshakeTimeout: HANDSHAKE_MS });
    server.maxConnections = CONNECTIONS_MAX;
    server.on('session', (session) => {
      this.#sessions.add(session);
      session.setLocalWindowSize(SESSION_WINDOW_BYTES);
      session.on('close', () => this.#sessions.delete(session));
      session.on('error', () => {}); // the event 'close' follows
    });
    server.on('stream', (stream, headers) => {
      stream.on('error', () => {}); // the event 'close' follows
      const path = headers[constants.HTTP2_HEADER_PATH];
      if (path === CALLS_PATH) this.#onLink(stream);
      else if (path === FETCH_PATH) neverRejects(this.#onFetch(stream));
      else stream.respond({ ':status': 404 }, { endStream: true });
    });
    this.#server = server;
  }

  /** Resolves to the port. Rejects with the errors of `net.Server`. */
  listen(host: string, port: number): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, () => {
        this.#server.off('error', reject);
        this.#server.on('error', (error) => this.#options.log(`links: ${error.message}`));
        const address = this.#server.address();
        resolve(typeof address === 'object' && address !== null ? address.port : port);
      });
    });
  }

  /** Reports on all links which agents connected to this process, or left it. */
  tell(opened: string[], closed: string[]): void {
    for (const stream of this.#links) reply(stream, { kind: 'tunnels', all: false, opened, closed });
  }

  close(): void {
    this.#server.close();
    for (const session of this.#sessions) session.destroy();
  }

  #onLink(stream: ServerHttp2Stream): void {
    const reader = new LinkFrameReader();
    let greeted = false;
    let running = 0;
    stream.respond({ ':status': 200 });
    stream.write(encodeLinkFrame(this.#options.hello));
    reply(stream, { kind: 'tunnels', all: true, opened: this.#options.tunnels(), closed: [] });
    this.#links.add(stream);
    stream.on('close', () => this.#links.delete(stream));
    stream.on('data', (bytes: Buffer) => {
      try {
        reader.add(bytes);
        for (let next = reader.next(); next !== undefined; next = reader.next()) {
          if (!greeted) helloSchema.parse(next.value);
          else if (++running > CALLS_MAX) throw new Error(`more than ${CALLS_MAX} calls wait`);
          else neverRejects(this.#onCall(stream, callSchema.parse(next.value)).finally(() => running--));
          greeted = true;
        }
      } catch (error) {
        this.#options.log(`a link is closed: ${errorText(error)}`);
        stream.session?.destroy();
      }
    });
  }

  async #onCall(stream: ServerHttp2Stream, call: LinkCall): Promise<void> {
    const { id } = call;
    try {
      const value = await this.#options.call(call);
      reply(stream, { kind: 'result', id, value });
    } catch (error) {
      if (error instanceof MovedError) return reply(stream, { kind: 'moved', id, inDoubt: error.inDoubt });
      reply(stream, { kind: 'error', id, message: errorText(error), overloaded: isOverloaded(error) });
    }
  }

  async #onFetch(stream: ServerHttp2Stream): Promise<void> {
    const left = new AbortController();
    stream.on('close', () => left.abort());
    let request: Request | undefined;
    try {
      const { className, name, url, method, headers, hasBody } = fetchSchema.parse(await readHead(stream));
      const body = hasBody ? bodyOf(stream, 'request') : undefined;
      const init = { method, headers, signal: left.signal, ...(body && { body, duplex: 'half' as const }) };
      request = new Request(url, init);
      const response = await this.#options.fetch(className, name, request);
      stream.respond({ ':status': 200 });
      const upgrade = upgradeOf(response);
      if (upgrade !== undefined) {
        stream.write(
          encodeLinkFrame({ kind: 'socket', headers: Object.entries(upgrade.headers) } satisfies LinkFetchReply),
        );
        upgrade.socket.attach(new LinkedConnection(stream));
        return;
      }
      const head = { status: response.status, headers: [...response.headers], hasBody: response.body !== null };
      stream.write(encodeLinkFrame({ kind: 'response', ...head } satisfies LinkFetchReply));
      await writeBody(response.body, stream);
      dropUnread(request); // not before: the response may be the request's body
    } catch (error) {
      if (request !== undefined) dropUnread(request);
      if (stream.destroyed || stream.closed) return;
      if (stream.headersSent) return stream.close(constants.NGHTTP2_INTERNAL_ERROR);
      stream.respond({ ':status': 200 });
      const moved: LinkFetchReply = { kind: 'moved' };
      const failed: LinkFetchReply = { kind: 'error', message: errorText(error), overloaded: isOverloaded(error) };
      stream.end(encodeLinkFrame(error instanceof MovedError ? moved : failed));
    }
  }
}

/** The rest of a body that no object reads would wait in the stream for ever, and the stream would stay. */
function dropUnread({ body }: Request): void {
  if (body?.locked === false) neverRejects(body.cancel().catch(() => {}));
}

/** A result that cannot be copied is an error of its call. */
function reply(stream: ServerHttp2Stream, message: LinkReply): void {
  if (stream.destroyed || stream.closed) return;
  try {
    stream.write(encodeLinkFrame(message));
  } catch (error) {
    if (message.kind !== 'result') throw error;
    reply(stream, { kind: 'error', id: message.id, message: errorText(error), overloaded: false });
  }
}
