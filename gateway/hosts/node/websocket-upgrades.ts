/** Accepts WebSockets of agents and clients: the app decides about the request, and `ws` performs the handshake. */
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { REALTIME_MESSAGE_MAX_BYTES } from '../../../shared/openai/realtime/message-records.ts';
import { REALTIME_PROTOCOL } from '../../../shared/openai/realtime/realtime-key.ts';
import { MESSAGE_MAX_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { app } from '../../app.ts';
import type { Env } from '../../env.ts';
import type { Background } from '../../platform/object-context.ts';
import { stoppingError } from '../../platform/stopping-error.ts';
import { type ClientConnections, WEBSOCKETS_MAX } from './client-connections.ts';
import { answerUnreadable, endWithError, findAmbiguity } from './malformed-requests.ts';
import { upgradeOf } from './node-sockets.ts';
import { stripBasePath } from './strip-base-path.ts';

/**
 * Maximum bytes of a message for `ws`. Messages above our own, lower limit are refused by the reader, which reports the
 * reason.
 */
const SOCKET_MESSAGE_MAX_BYTES = 4 * MESSAGE_MAX_BYTES;

interface UpgradeOptions {
  env: Env;
  background: Background;
  encrypted: boolean;
  connections: ClientConnections;
}

export class Upgrades {
  readonly #options: UpgradeOptions;
  readonly #sockets = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    maxPayload: SOCKET_MESSAGE_MAX_BYTES,
  });
  readonly #clientSockets = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    maxPayload: REALTIME_MESSAGE_MAX_BYTES,
    // Otherwise `ws` would choose the client's first protocol, which may contain its key.
    handleProtocols: (protocols) => (protocols.has(REALTIME_PROTOCOL) ? REALTIME_PROTOCOL : false),
  });
  #closing = false;

  constructor(options: UpgradeOptions) {
    this.#options = options;
  }

  /** From now on no WebSocket is accepted. */
  close(): void {
    this.#closing = true;
  }

  /** Handles an upgrade request. Never rejects. */
  async take(message: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    socket.on('error', () => {}); // the event 'close' follows
    stripBasePath(message, this.#options.env.BASE_PATH);
    const ambiguous = findAmbiguity(message);
    if (ambiguous !== undefined)
      return answerUnreadable(socket, { status: 400, statusText: 'Bad Request', message: ambiguous.message });
    if (this.#options.connections.of(message.socket)?.last) return void socket.destroy();
    const response = new ServerResponse(message);
    const gone = watchPendingSocket(socket);
    const answer = await this.#answer(message, gone.signal);
    gone.over();
    const upgrade = upgradeOf(answer);
    const refusal = this.#refusal(message.socket, upgrade !== undefined);
    if (refusal !== undefined) {
      upgrade?.socket.settle();
      return endWithError(socket, '503 Service Unavailable', refusal);
    }
    if (upgrade === undefined) {
      response.assignSocket(socket as Socket);
      response.on('finish', () => socket.end());
      response.writeHead(answer.status, { ...Object.fromEntries(answer.headers), connection: 'close' });
      return void response.end(Buffer.from(await answer.arrayBuffer()));
    }
    const headers = (lines: string[]) => {
      for (const [name, value] of Object.entries(upgrade.headers)) lines.push(`${name}: ${value}`);
    };
    const sockets = upgrade.client === true ? this.#clientSockets : this.#sockets;
    // handleUpgrade writes the head before it returns, so the listener is set first.
    sockets.once('headers', headers);
    try {
      sockets.handleUpgrade(message, socket, head, (connection) => upgrade.socket.attach(connection, socket));
    } finally {
      sockets.removeListener('headers', headers);
      upgrade.socket.settle();
    }
  }

  #refusal(socket: Socket, upgrades: boolean): ApiError | undefined {
    if (this.#closing) return stoppingError();
    const place = upgrades ? this.#options.connections.of(socket) : undefined;
    if (place === undefined || this.#options.connections.upgrade(place)) return undefined;
    const message = `This gateway already has its maximum of ${WEBSOCKETS_MAX} WebSockets. Use another gateway.`;
    return new ApiError('server_is_overloaded', message);
  }

  async #answer(message: IncomingMessage, signal: AbortSignal): Promise<Response> {
    const { env, background, encrypted } = this.#options;
    const scheme = encrypted ? 'https' : 'http';
    try {
      const url = new URL(message.url ?? '/', `${scheme}://${message.headers.host ?? 'localhost'}`);
      const request = new Request(url, { headers: plainHeaders(message), signal });
      const context = { passThroughOnException: () => {}, waitUntil: background.waitUntil, props: {} };
      return await app.fetch(request, env, context);
    } catch (error) {
      console.error(error);
      return new Response('bad request', { status: 400 });
    }
  }
}

/**
 * Notices that a client disconnects before its handshake: a realtime session may wait for a node. Nothing reads the
 * socket at that time, so `read(0)` starts the reading; the bytes stay in the socket's buffer.
 */
function watchPendingSocket(socket: Duplex): { signal: AbortSignal; over(): void } {
  const controller = new AbortController();
  const onGone = () => controller.abort();
  for (const event of ['end', 'close']) socket.once(event, onGone);
  socket.read(0);
  return {
    signal: controller.signal,
    over: () => {
      for (const event of ['end', 'close']) socket.removeListener(event, onGone);
    },
  };
}

function plainHeaders({ headers }: IncomingMessage): [string, string][] {
  return Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, typeof value === 'string' ? value : value.join(', ')] as [string, string]],
  );
}
