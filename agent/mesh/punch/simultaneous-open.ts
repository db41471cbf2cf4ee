/**
 * TCP simultaneous open (RFC 9293 §3.5): two hosts behind NATs connect to each other's outside address at the same time,
 * each from the port that the other one expects. The first segment of each opens its own NAT for the other's.
 */
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { Address } from '../channel/happy-eyeballs.ts';

/** Least pause before the next try after a refusal, for example by a NAT that answers with RST. */
const RETRY_MS = 100;
/** Maximum connections that arrive at the port. The other end opens one. */
const ARRIVALS_MAX = 4;

interface SimultaneousOpenOptions {
  /** The local port. The other end knows its outside address. */
  localPort: number;
  /** The other end's outside address. */
  remote: Address;
  /** Called with each TCP connection, which the callee then owns. Several may lead to the other end. */
  onSocket(socket: Socket): void;
}

export class SimultaneousOpen {
  readonly #options: SimultaneousOpenOptions;
  #dialed: Socket | undefined;
  #server: Server | undefined;
  #retry: NodeJS.Timeout | undefined;
  #arrivals = 0;
  #closed = false;

  constructor(options: SimultaneousOpenOptions) {
    this.#options = options;
    this.#dial();
  }

  #dial(): void {
    const { localPort, remote, onSocket } = this.#options;
    // Linux binds no socket to a port on which another one listens, even with SO_REUSEADDR.
    this.#server?.close();
    this.#server = undefined;
    const socket = connect({ ...remote, localPort, noDelay: true });
    this.#dialed = socket;
    socket.once('connect', () => {
      if (this.#dialed === socket) this.#dialed = undefined;
      onSocket(socket);
    });
    socket.on('error', () => {
      if (this.#dialed !== socket || this.#closed) return;
      this.#dialed = undefined;
      // Meanwhile the port listens. Two ends that are closed alternately would refuse each other forever.
      this.#retry = setTimeout(() => this.#dial(), RETRY_MS * (1 + Math.random()));
    });
    // The other end's NAT may deliver its segment from another port. Then it is another connection, which only a
    // listening socket accepts. The dialing socket must be bound first.
    setImmediate(() => this.#listen());
  }

  #listen(): void {
    if (this.#closed || this.#server !== undefined) return;
    const server = createServer({ noDelay: true }, (socket) => {
      if (this.#closed || ++this.#arrivals > ARRIVALS_MAX) socket.destroy();
      else this.#options.onSocket(socket);
    });
    // Without the listening socket the dialing one can still succeed.
    server.on('error', () => {});
    server.listen({ host: '0.0.0.0', port: this.#options.localPort, exclusive: true });
    this.#server = server;
  }

  /** Ends the attempts, but no connection. Idempotent. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#retry);
    this.#server?.close();
    this.#dialed?.destroy();
  }
}
