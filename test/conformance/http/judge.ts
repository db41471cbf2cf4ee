/** A second HTTP/1.1 parser as the reference: Node's own, in strict mode, in this process. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { atEnd } from '../../support/processes.ts';
import { Connection } from './connection.ts';

/** After this many milliseconds without a byte, the responses on a connection count as complete. */
const QUIET_MS = 150;
/** Turns in that time. Fewer say nothing: a process that is starved has not read its sockets. */
const QUIET_TURNS = 15;

export interface Verdict {
  /** Statuses of the responses, in order. */
  statuses: number[];
  /** `METHOD target body` of each part that was read as a request. */
  requests: string[];
}

export class Judge {
  readonly #server: Server;
  readonly #requests: string[] = [];

  private constructor(server: Server) {
    this.#server = server;
    server.on('request', (request, response) => {
      let body = '';
      request.setEncoding('latin1').on('data', (piece: string) => {
        body += piece;
      });
      request.on('error', () => {});
      request.on('end', () => {
        this.#requests.push(`${request.method} ${request.url} ${body}`);
        response.end('judged');
      });
    });
    atEnd(() => {
      server.closeAllConnections();
      server.close();
    });
  }

  static async open(): Promise<Judge> {
    const server = createServer({ insecureHTTPParser: false, requireHostHeader: true });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new Judge(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async hear(bytes: string): Promise<Verdict> {
    this.#requests.length = 0;
    const connection = await Connection.open(this.url);
    connection.send(bytes);
    await quiet(connection);
    connection.close();
    return { statuses: connection.answers.map(({ status }) => status), requests: [...this.#requests] };
  }
}

/**
 * Waits until the connection is closed, or until nothing has arrived on it for `quietMs`, over as many turns of this
 * process as belong to that time.
 */
export async function quiet(connection: Connection, quietMs = QUIET_MS): Promise<void> {
  for (let turns = 0, length = -1; turns < QUIET_TURNS && !connection.ended; turns++) {
    if (connection.text.length !== length) turns = 0;
    length = connection.text.length;
    await delay(quietMs / QUIET_TURNS);
  }
}
