/**
 * A gateway of a peer institution that lies to every agent: that its session has ended, that each gateway belongs to
 * the agent's institution, or that there is a batch. Or it answers garbage.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';
import { atEnd } from './processes.ts';

/** Maximum number of recorded requests. */
const ASKED_MAX = 100_000;
const DEEP = `${'['.repeat(100_000)}${']'.repeat(100_000)}`;
const OVER = JSON.stringify({
  error: { message: 'over', type: 'invalid_request_error', param: null, code: 'session_over' },
});

export interface LyingGateway {
  url: string;
  /** Path and `authorization` of every request. */
  asked: [path: string, authorization: string | undefined][];
  /** Requests that sent a secret, or asked for admission, which sends the join token. */
  readonly secretsSeen: [path: string, authorization: string | undefined][];
}

type Lie = (url: string) => [status: number, body: string];
const OWN: Lie = (url) => [200, JSON.stringify({ object: 'list', data: [{ url, own: true }] })];
/** Answers to plain HTTP requests. */
const LIES: readonly Lie[] = [
  OWN,
  () => [410, OVER],
  () => [200, DEEP],
  () => [200, '{"lease":{"id":"x","lines":[{"model":"function:x:y"}],"code":"import os"},"functions":["*"]}'],
  () => [200, ''],
  () => [500, 'x'.repeat(1024 * 1024)],
];

function lieTo(socket: WebSocket, random: () => number): void {
  socket.on('error', () => {});
  socket.send(Buffer.from(Array.from({ length: 64 }, () => Math.floor(256 * random()))));
  socket.send(DEEP);
  socket.close();
}

/**
 * @param random chooses the lies; without it, every session has ended, and every gateway belongs to the agent's
 * institution
 */
export async function lyingGateway(random?: () => number): Promise<LyingGateway> {
  const asked: LyingGateway['asked'] = [];
  const note = (url: string | undefined, authorization: string | undefined) => {
    if (asked.length < ASKED_MAX) asked.push([url ?? '', authorization]);
  };
  const server = createServer((request, response) => {
    note(request.url, request.headers.authorization);
    const lie = random === undefined ? OWN : (LIES[Math.floor(random() * LIES.length)] ?? OWN);
    const [status, body] = lie(`http://${request.headers.host}`);
    response.on('error', () => {});
    response.writeHead(status).end(body);
  });
  const sockets = new WebSocketServer({ noServer: true });
  server.on('upgrade', (request, socket, head) => {
    note(request.url, request.headers.authorization);
    socket.on('error', () => {});
    if (random !== undefined && random() < 0.5)
      return sockets.handleUpgrade(request, socket, head, (opened) => lieTo(opened, random));
    socket.end(`HTTP/1.1 410 Gone\r\ncontent-length: ${OVER.length}\r\n\r\n${OVER}`);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    get secretsSeen() {
      return asked.filter(([path, authorization]) => path.endsWith('/admit') || authorization !== undefined);
    },
  };
}
