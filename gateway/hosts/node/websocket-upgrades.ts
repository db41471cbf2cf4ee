/** Accepts agents' WebSockets: the app decides about the request, and `ws` performs the handshake. */
import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { MESSAGE_MAX_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { app } from '../../app.ts';
import type { Env } from '../../env.ts';
import type { Background } from '../../platform/object-context.ts';
import { stoppingError } from '../../platform/stopping-error.ts';
import { type ClientConnections, WEBSOCKETS_MAX } from './client-connections.ts';
import { answerUnreadable, endWithError, findAmbiguity } from './malformed-requests.ts';
import { upgradeOf } from './node-sockets.ts';

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
    const ambiguous = findAmbiguity(message);
    if (ambiguous !== undefined)
      return answerUnreadable(socket, { status: 400, statusText: 'Bad Request', message: ambiguous.message });
    if (this.#options.connections.of(message.socket)?.last) return void socket.destroy();
    const response = new ServerResponse(message);
    const answer = await this.#answer(message);
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
    // handleUpgrade writes the head before it returns, so the listener is set first.
    this.#sockets.once('headers', headers);
    try {
      this.#sockets.handleUpgrade(message, socket, head, (connection) => upgrade.socket.attach(connection, socket));
    } finally {
      this.#sockets.removeListener('headers', headers);
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

  async #answer(message: IncomingMessage): Promise<Response> {
    const { env, background, encrypted } = this.#options;
    const scheme = encrypted ? 'https' : 'http';
    try {
      const url = new URL(message.url ?? '/', `${scheme}://${message.headers.host ?? 'localhost'}`);
      const request = new Request(url, { headers: plainHeaders(message) });
      const context = { passThroughOnException: () => {}, waitUntil: background.waitUntil, props: {} };
      return await app.fetch(request, env, context);
    } catch (error) {
      console.error(error);
      return new Response('bad request', { status: 400 });
    }
  }
}

function plainHeaders({ headers }: IncomingMessage): [string, string][] {
  return Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, typeof value === 'string' ? value : value.join(', ')] as [string, string]],
  );
}
