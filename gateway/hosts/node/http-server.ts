/**
 * The HTTP server for clients and agents. `node:http`, in strict mode, is the only parser; fast-path/ handles requests
 * that need no parser.
 */

import { constants, X509Certificate } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { Server as NetServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { Server as TlsServer } from 'node:tls';
import { getRequestListener } from '@hono/node-server';
import { EXCHANGE_PATH } from '../../../shared/factory/factory-exchange.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { app } from '../../app.ts';
import type { Env } from '../../env.ts';
import { isResourcePath } from '../../files/is-resource-path.ts';
import { setCertificateEnd } from '../../observe/process-metrics.ts';
import { handleOpenAI } from '../../openai/handle-openai.ts';
import type { Background } from '../../platform/object-context.ts';
import { type ClientConnection, ClientConnections } from './client-connections.ts';
import { drainConnections } from './drain-connections.ts';
import { type ConnectionTakeover, FastPathConnection } from './fast-path/fast-path-connection.ts';
import { FastPathRequest } from './fast-path/fast-path-request.ts';
import { type FastPathResponse, KEEP_ALIVE_HINT_MS, KEEP_ALIVE_MS } from './fast-path/fast-path-response.ts';
import type { FastPathHead } from './fast-path/read-head.ts';
import type { LocalOffloads } from './local-offload.ts';
import {
  answerUnreadable,
  BAD_REQUEST,
  CONNECT_REFUSED,
  findAmbiguity,
  NO_HOST,
  REQUEST_TIMEOUT,
  refuseAmbiguous,
  refuseUnreadable,
} from './malformed-requests.ts';
import { NodeRequest, wholeBody } from './node-request.ts';
import type { ResponseWriter } from './response-writer.ts';
import { REUSE_PORT } from './serve/process-count.ts';
import { stripBasePath } from './strip-base-path.ts';
import { Upgrades } from './websocket-upgrades.ts';
import { writeAnswer } from './write-response.ts';

/** TCP probes an idle connection after this time, so that a peer that disappeared (power, cable) is detected. */
const KEEP_ALIVE_PROBE_MS = 30_000;
const HANDSHAKE_MS = 10_000;
/**
 * Allowed TLS versions. RFC 8996 deprecates TLS 1.0 and 1.1. The versions are set here, because Node's default can be
 * lowered by a flag, or by NODE_OPTIONS, which a site may have set for another program.
 */
const TLS_LIMITS = {
  minVersion: 'TLSv1.2',
  maxVersion: 'TLSv1.3',
  // A TLS 1.2 client that renegotiates repeatedly would cost a key exchange each time (RFC 9325 §3.5). Node's own limit
  // does not end such a connection.
  secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
} as const;
/** Maximum time for a request's head to arrive. Bodies have their own stall limit. */
const HEADERS_MS = 15_000;
/** Interval at which HEADERS_MS is checked. */
const HEADERS_POLL_MS = 5_000;
const HEAD_MAX_BYTES = 64 * 1024;
/**
 * Paths of requests to which the gateway responds only when there is work for the client. The clients repeat such
 * requests, so a stopping gateway does not wait for them.
 */
const WAITS_FOR_WORK: ReadonlySet<string> = new Set(['/agent/batch/lease', EXCHANGE_PATH]);

/**
 * A path of a request to a model, without dots, escapes or doubled slashes that a URL parser could read differently.
 */
const MODEL_PATH = /^\/v1(?:\/[A-Za-z0-9_-]+)+$/;

export interface TlsMaterial {
  cert: Buffer;
  key: Buffer;
}

interface HttpServerOptions {
  tls: TlsMaterial | undefined;
  env: Env;
  offloads: LocalOffloads;
  background: Background;
}

export class HttpServer {
  readonly #server: Server;
  readonly #options: HttpServerOptions;
  readonly #encrypted: boolean;
  readonly #listener: (request: IncomingMessage, response: ServerResponse) => Promise<void>;
  readonly #upgrades: Upgrades;
  readonly #connections = new ClientConnections();
  #closing = false;
  /** True if the time for draining is over, so that requests without a response got an error. */
  #refused = false;

  constructor(options: HttpServerOptions) {
    this.#options = options;
    const { tls, env, background } = options;
    this.#encrypted = tls !== undefined;
    if (tls !== undefined) tellEnd(tls);
    this.#listener = this.#routerListener();
    this.#upgrades = new Upgrades({ env, background, encrypted: this.#encrypted, connections: this.#connections });
    this.#server = createNodeServer(tls, (request, response) => this.#onRequest(request, response));
    this.#onEvents();
    this.#takeConnections(tls === undefined ? 'connection' : 'secureConnection');
  }

  /** Returns the listener that answers requests with the router. */
  #routerListener(): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
    const { env, background } = this.#options;
    const context = { ...background, passThroughOnException: () => {}, waitUntil: background.waitUntil, props: {} };
    return getRequestListener(
      (request, { incoming }) => {
        const accepted = this.#proofCallback(incoming.socket);
        // The socket is not destroyed if the router reads only part of the body, because the client must still receive
        // the response.
        const pieces = () => incoming.iterator({ destroyOnReturn: false });
        return app.fetch(Object.assign(request, { accepted, pieces }), env, context);
      },
      { overrideGlobalObjects: false },
    );
  }

  #onEvents(): void {
    // Without this listener, node:http would answer 417 before our handler sees the request.
    this.#server.on('checkExpectation', (request, response) => this.#onRequest(request, response));
    this.#server.on('checkContinue', (request, response) => this.#onRequest(request, response, inTurn));
    this.#server.on('upgrade', (request, socket, head) =>
      this.#afterEarlierResponses(socket, () => neverRejects(this.#upgrades.take(request, socket, head))),
    );
    this.#server.on('connect', (_message, socket: Duplex) =>
      this.#afterEarlierResponses(socket, () => answerUnreadable(socket, CONNECT_REFUSED)),
    );
    this.#server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) =>
      refuseUnreadable(error, socket, this.#connections.of(socket as Socket)),
    );
  }

  /**
   * Passes each new connection to the fast path. The listener of node:http gets it only when something other than a
   * fast-path request arrives on it.
   */
  #takeConnections(event: 'connection' | 'secureConnection'): void {
    const [parse] = this.#server.listeners(event) as ((socket: Socket) => void)[];
    if (parse === undefined) throw new Error('node:http listens to no connection');
    this.#server.removeListener(event, parse);
    this.#server.on('connection', (socket: Socket) => this.#connections.add(socket));
    this.#server.on(event, (socket: Socket) => this.#onConnection(socket, parse));
  }

  /** Resolves to the port; rejects with the errors of `net.Server` (EADDRINUSE, EACCES, …). */
  listen(port: number, host: string): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      // The processes of `serve --processes` share a port.
      const reusePort = process.env[REUSE_PORT] !== undefined;
      this.#server.listen({ port, host, reusePort }, () => {
        this.#server.removeListener('error', reject);
        // Errors such as too many open files are reported here, and must not end the process.
        this.#server.on('error', (error) => console.error(`public socket: ${error.message}`));
        const address = this.#server.address();
        resolve(typeof address === 'object' && address !== null ? address.port : port);
      });
    });
  }

  /**
   * Replaces the certificate for new connections; existing connections keep the old one.
   * @throws Error if certificate and key do not match
   */
  reload(tls: TlsMaterial): void {
    if (!(this.#server instanceof TlsServer)) return;
    this.#server.setSecureContext({ ...tls, ...TLS_LIMITS });
    tellEnd(tls);
  }

  /**
   * Calls `write` after the responses to earlier requests on the connection. Otherwise a client, or a proxy that shares
   * the connection, would mistake the written bytes for one of these responses.
   */
  #afterEarlierResponses(socket: Duplex, write: () => void): void {
    const last = this.#connections.of(socket as Socket)?.answering.at(-1);
    if (last === undefined) return write();
    last.response.once('close', () => {
      if (socket.writable) write();
    });
  }

  #onConnection(socket: Socket, parse: (socket: Socket) => void): void {
    const connection = this.#connections.of(socket);
    if (connection === undefined) return void socket.destroy();
    const server = this;
    connection.http = socket;
    connection.plain = new FastPathConnection(socket, {
      idleMs: KEEP_ALIVE_MS,
      get closing() {
        return server.#closing;
      },
      answer: (head, response) => this.#takeFastPath(connection, head, response),
      parse: () => {
        connection.plain = undefined;
        connection.idleAtBytes = -1; // a part of a request has arrived
        parse.call(this.#server, socket);
      },
      late: () => answerUnreadable(socket, REQUEST_TIMEOUT),
      cut: () => answerUnreadable(socket, BAD_REQUEST),
    });
  }

  #takeFastPath(
    connection: ClientConnection,
    head: FastPathHead,
    response: FastPathResponse,
  ): ConnectionTakeover | undefined {
    if (isResourcePath(head.path)) return undefined;
    this.#connections.asks(connection);
    const request = new FastPathRequest(head, this.#encrypted ? 'https' : 'http', (holder) =>
      this.#connections.prove(connection, holder),
    );
    neverRejects(this.#serve(request, response));
    return { leave: request.client.leave };
  }

  /**
   * Returns a function that marks the connection as proven. Call it with the owner of a valid key that arrived on the
   * connection.
   */
  #proofCallback(socket: Socket): (holder: string) => void {
    return (holder) => {
      const connection = this.#connections.of(socket);
      if (connection !== undefined) this.#connections.prove(connection, holder);
    };
  }

  /**
   * Checks a request as soon as its head has arrived. `whenFree` gets the function that answers the request, and calls
   * it when the responses to earlier requests were sent.
   */
  #onRequest(message: IncomingMessage, response: ServerResponse, whenFree: WhenFree = atOnce): void {
    const connection = this.#connections.of(message.socket);
    if (connection === undefined || connection.unreadable) return void message.socket.destroy();
    if (connection.last) return;
    const elsewhere = stripBasePath(message, this.#options.env.BASE_PATH);
    connection.answering.push({ message, response, held: WAITS_FOR_WORK.has(message.url ?? '') });
    this.#connections.asks(connection);
    response.on('close', () => this.#connections.answered(connection, { response }));
    response.on('error', () => {}); // the event 'close' follows
    response.on('finish', () => void message.socket.setTimeout(KEEP_ALIVE_MS));
    // This request is the last one: after a request that offers another protocol, the parser drops its remaining input,
    // even in the middle of another request.
    if (isOffer(message)) connection.last = true;
    if (this.#closing || connection.last) response.setHeader('connection', 'close');
    const ambiguous = findAmbiguity(message);
    if (ambiguous !== undefined) {
      connection.last = true;
      return void refuseAmbiguous(response, ambiguous);
    }
    if (elsewhere !== undefined) return void response.writeHead(308, { location: elsewhere }).end();
    whenFree(response, () => this.#answer(message, response, connection));
  }

  #answer(message: IncomingMessage, response: ServerResponse, connection: ClientConnection): void {
    // A missing Host header gets a default: HTTP/1.0 does not require it, and health checks often use HTTP/1.0.
    message.headers.host ??= 'localhost';
    const [path = '/'] = (message.url ?? '/').split('?', 1);
    if (message.method === 'POST' && MODEL_PATH.test(path) && !isResourcePath(path))
      neverRejects(this.#answerModelRequest(message, response, path));
    else if (URL.canParse(`http://${message.headers.host}`)) neverRejects(this.#listener(message, response));
    else {
      connection.last = true;
      refuseAmbiguous(response, NO_HOST);
    }
  }

  /** Answers a request to a model, without the router and the Fetch classes. */
  async #answerModelRequest(message: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
    const whole = await wholeBody(message);
    const accepted = this.#proofCallback(message.socket);
    await this.#serve(
      new NodeRequest({ message, response, encrypted: this.#encrypted, accepted }, path, whole),
      response,
    );
  }

  async #serve(request: NodeRequest | FastPathRequest, response: ResponseWriter): Promise<void> {
    const { env, background, offloads } = this.#options;
    try {
      const answer = await handleOpenAI(request, request.path, env, background);
      if (this.#refused) return;
      await writeAnswer(request.client, response, answer, offloads);
    } catch (error) {
      console.error(error);
      response.destroy();
    }
  }

  /**
   * Stops accepting connections, lets running requests finish for at most `drainMs`, then closes all connections.
   * Idempotent.
   */
  async close(drainMs: number): Promise<void> {
    this.#closing = true;
    this.#upgrades.close();
    // Calls the `close` of node:net, because that of node:http also destroys connections on which the last bytes of a
    // finished response were not sent yet.
    NetServer.prototype.close.call(this.#server);
    await drainConnections(this.#connections, drainMs, () => {
      this.#refused = true;
    });
  }
}

function createNodeServer(
  tls: TlsMaterial | undefined,
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Server {
  const http = {
    insecureHTTPParser: false,
    requireHostHeader: false, // node:http's own refusal would be a response that is not tracked here; see malformed-requests.ts.
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_PROBE_MS,
    keepAliveTimeout: KEEP_ALIVE_HINT_MS, // only the value in the header; the timeout itself is set when a response is complete
    headersTimeout: HEADERS_MS,
    connectionsCheckingInterval: HEADERS_POLL_MS,
    requestTimeout: 0,
    maxHeaderSize: HEAD_MAX_BYTES,
    shouldUpgradeCallback: isWebSocket,
  };
  if (tls === undefined) return createServer(http, answer);
  const encryption = { ...tls, ...TLS_LIMITS, ALPNProtocols: ['http/1.1'], handshakeTimeout: HANDSHAKE_MS };
  return createTlsServer({ ...http, ...encryption }, answer);
}

type WhenFree = (response: ServerResponse, next: () => void) => void;

const atOnce: WhenFree = (_, next) => next();

function isWebSocket({ method, headers }: IncomingMessage): boolean {
  return method === 'GET' && headers.upgrade?.toLowerCase() === 'websocket';
}

/**
 * Sends 100 Continue and then calls `next`, after the responses to earlier requests on the connection. node:http would
 * send 100 Continue immediately, perhaps inside the body of an earlier response. The client would then read the last
 * bytes of that body as the next response.
 */
const inTurn: WhenFree = (response, next) => {
  const say = () => {
    response.writeContinue();
    next();
  };
  if (response.socket === null) response.once('socket', say);
  else say();
};

/** True if the client offers another protocol that is not accepted. llhttp makes the same test. */
function isOffer({ headers }: IncomingMessage): boolean {
  return headers.upgrade !== undefined && /upgrade/i.test(headers.connection ?? '');
}

function tellEnd({ cert }: TlsMaterial): void {
  setCertificateEnd(Date.parse(new X509Certificate(cert).validTo) / 1000);
}
