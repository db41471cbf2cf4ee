/** A TCP port that leads to a Unix socket, as an address that moves between servers does. It can be cut. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { atEnd } from './processes.ts';

export class TcpRelay {
  readonly port: number;
  /** Path of the Unix socket to which new connections lead. */
  target: string;
  #isCut = false;
  readonly #sockets: Set<Socket>;

  private constructor(port: number, target: string, sockets: Set<Socket>) {
    this.port = port;
    this.target = target;
    this.#sockets = sockets;
  }

  /** @param host the address at which it listens */
  static async open(target: string, host = '127.0.0.1'): Promise<TcpRelay> {
    const sockets = new Set<Socket>();
    const server = createServer((from) => relay.#accept(from));
    await new Promise<void>((resolve) => server.listen(0, host, resolve));
    const relay = new TcpRelay((server.address() as AddressInfo).port, target, sockets);
    atEnd(() => {
      server.close();
      relay.drop();
    });
    return relay;
  }

  #accept(from: Socket): void {
    // A cut network does not answer. The bytes are not read, so that nothing of them arrives later.
    if (this.#isCut) return this.#keep(from.pause());
    const to = connect(this.target);
    this.#keep(from);
    this.#keep(to);
    from.pipe(to).pipe(from);
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket);
    // Each end closes with the other, in both directions.
    socket.on('error', () => {}).once('close', () => this.#sockets.delete(socket));
  }

  /** Nothing passes from now on: neither bytes, nor the end of a connection. */
  cut(): void {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.unpipe().pause();
  }

  /** New connections pass again. The old ones are reset. */
  heal(): void {
    this.#isCut = false;
    this.drop();
  }

  /** Resets all connections. */
  drop(): void {
    for (const socket of this.#sockets) {
      // Only a TCP connection can be reset; the other end is a Unix socket.
      if (socket.remoteFamily === undefined) socket.destroy();
      else socket.resetAndDestroy();
    }
  }

  /** Leads new connections to another server, and resets the others. */
  lead(target: string): void {
    this.target = target;
    this.drop();
  }
}
