/** Ends the connections of a server that stops. */
import { errorBody } from '../../../shared/openai/api-errors.ts';
import { stoppingError } from '../../platform/stopping-error.ts';
import { waitClock } from '../../platform/wait-clock.ts';
import type { ClientConnection, ClientConnections } from './client-connections.ts';
import { endWithError } from './malformed-requests.ts';
import type { ResponseWriter } from './response-writer.ts';

/** Interval at which the number of open requests is checked. */
const QUIET_MS = 50;
/** Maximum time for sending the last errors to clients. */
const REFUSAL_MS = 500;

/**
 * Closes idle connections, and lets requests that have begun to arrive finish for at most `drainMs`. Then each request
 * without a response gets 503, and all connections close.
 * @param onDeadline called before the 503s are sent
 */
export async function drainConnections(
  connections: ClientConnections,
  drainMs: number,
  onDeadline: () => void,
): Promise<void> {
  for (const connection of connections) connection.announceEnd();
  await idle(connections, drainMs);
  onDeadline();
  for (const connection of connections) refuse(connection);
  await idle(connections, REFUSAL_MS);
  for (const { socket } of connections) socket.destroy();
}

/** Resolves when no connection has an open request, at the latest after `ms`. Closes connections that become idle. */
async function idle(connections: ClientConnections, ms: number): Promise<void> {
  const deadline = waitClock.now() + ms;
  for (;;) {
    let busy = false;
    for (const connection of connections) {
      if (connection.busy) busy = true;
      else if (connection.idle && connection.http?.writableEnded === false) connection.socket.destroy();
    }
    const leftMs = deadline - waitClock.now();
    if (!busy || leftMs <= 0) return;
    await new Promise((resolve) => setTimeout(resolve, Math.min(QUIET_MS, leftMs)));
  }
}

/** Sends 503 to a client that has received no part of its response. */
function refuse(connection: ClientConnection): void {
  const { http, plain, answering, busy } = connection;
  const [first] = answering;
  const response: (ResponseWriter & { headersSent: boolean }) | undefined = plain?.response ?? first?.response;
  if (response === undefined) {
    if (busy && http !== undefined) endWithError(http, '503 Service Unavailable', stoppingError());
    return;
  }
  if (response.headersSent) return;
  first?.message.resume();
  const error = stoppingError();
  const body = Buffer.from(errorBody(error));
  const headers = { 'content-type': 'application/json', 'content-length': String(body.length), ...error.headers };
  response.writeHead(error.status, { ...headers, connection: 'close' });
  response.end(body);
}
