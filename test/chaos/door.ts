/** One agent's path to the gateway, through a proxy that can be reset or cut as a network would. */
import { connect, createServer, type Server, type Socket } from 'node:net';

export class Door {
  readonly #server: Server;
  readonly #pairs = new Set<[Socket, Socket]>();
  #cut = false;
  url = '';
  /** Epoch milliseconds at which the gateway last sent the first byte on a connection. */
  answeredAt = 0;

  constructor(gatewayPort: number) {
    this.#server = createServer((inner) => this.#carry(inner, connect(gatewayPort, '127.0.0.1')));
  }

  async open(): Promise<this> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject).listen(0, '127.0.0.1', resolve);
    });
    const address = this.#server.address();
    this.url = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
    return this;
  }

  #carry(inner: Socket, outer: Socket): void {
    const pair: [Socket, Socket] = [inner, outer];
    this.#pairs.add(pair);
    for (const [from, to] of [pair, [outer, inner]] as const) {
      from.setNoDelay(true);
      from.on('data', (bytes) => {
        if (!to.write(bytes)) from.pause();
      });
      to.on('drain', () => this.#cut || from.resume());
      from.on('end', () => to.end());
      from.on('error', () => to.destroy());
      from.on('close', () => {
        to.destroy();
        this.#pairs.delete(pair);
      });
    }
    outer.once('data', () => {
      this.answeredAt = Date.now();
    });
    if (this.#cut) for (const socket of pair) socket.pause();
  }

  /** Both ends of every connection get a reset, as from a firewall that forgot them. */
  reset(): void {
    for (const pair of this.#pairs) for (const socket of pair) socket.resetAndDestroy();
  }

  /** No byte passes until `mend`; connections stay open and new ones hang. */
  cut(): void {
    this.#cut = true;
    for (const pair of this.#pairs) for (const socket of pair) socket.pause();
  }

  mend(): void {
    this.#cut = false;
    for (const pair of this.#pairs) for (const socket of pair) socket.resume();
  }

  close(): void {
    this.reset();
    this.#server.close();
  }
}
