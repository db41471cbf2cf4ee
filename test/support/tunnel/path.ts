/** A TCP path between an agent and its gateway that a test can cut, hold and measure. */
import { connect, createServer, type Server, type Socket } from 'node:net';

interface Pair {
  near: Socket;
  far: Socket;
}

export class Path {
  readonly #server: Server;
  readonly #pairs = new Set<Pair>();
  #closed = false;
  #held = false;
  #watchers = new Set<() => void>();
  readonly port: number;
  /** Bytes that passed toward the gateway since the path was opened. */
  toGateway = 0;
  toAgent = 0;
  /** Accepted connections so far. */
  connections = 0;

  private constructor(server: Server, port: number) {
    this.#server = server;
    this.port = port;
  }

  static open(target: URL): Promise<Path> {
    return new Promise((resolve, reject) => {
      let path: Path;
      const server = createServer((near) => path.#take(near, target));
      server.once('error', reject);
      server.listen(0, '127.0.0.1', () => {
        const address = server.address();
        const port = typeof address === 'object' && address !== null ? address.port : 0;
        path = new Path(server, port);
        resolve(path);
      });
    });
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${this.port}`);
  }

  #take(near: Socket, target: URL): void {
    this.connections++;
    if (this.#closed) return void near.destroy();
    const far = connect({ host: target.hostname, port: Number(target.port) });
    const pair = { near, far };
    this.#pairs.add(pair);
    const end = () => {
      near.destroy();
      far.destroy();
      this.#pairs.delete(pair);
    };
    for (const socket of [near, far]) socket.on('error', end).on('close', end);
    near.on('data', (chunk: Buffer) => {
      this.toGateway += chunk.length;
      this.#pass(near, far, chunk);
    });
    far.on('data', (chunk: Buffer) => {
      this.toAgent += chunk.length;
      this.#pass(far, near, chunk);
    });
    if (this.#held) this.hold();
  }

  #pass(from: Socket, to: Socket, chunk: Buffer): void {
    if (!to.write(chunk)) {
      from.pause();
      to.once('drain', () => {
        if (!this.#held) from.resume();
      });
    }
    for (const watcher of this.#watchers) watcher();
  }

  /** Resolves when `reached` returns true; it is checked after every chunk. */
  when(reached: () => boolean): Promise<void> {
    return new Promise((resolve) => {
      const look = () => {
        if (!reached()) return;
        this.#watchers.delete(look);
        resolve();
      };
      this.#watchers.add(look);
      look();
    });
  }

  /** Breaks the connections: both ends get a reset. */
  cut(): void {
    for (const { near, far } of this.#pairs) {
      near.resetAndDestroy();
      far.resetAndDestroy();
    }
  }

  /** Cuts, and refuses new connections until `mend`. */
  down(): void {
    this.#closed = true;
    this.cut();
  }

  mend(): void {
    this.#closed = false;
  }

  /** Stops passing bytes, without an error at either end. */
  hold(): void {
    this.#held = true;
    for (const { near, far } of this.#pairs) {
      near.pause();
      far.pause();
    }
  }

  release(): void {
    this.#held = false;
    for (const { near, far } of this.#pairs) {
      near.resume();
      far.resume();
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
