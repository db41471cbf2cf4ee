/** A client that is not read for a while, because nobody takes what it says, and that may leave meanwhile. */
import type { Socket } from 'node:net';

/** Node takes a socket that it does not read off the kernel's watch, so that a reset would go unseen, and the engine work on for nobody. */
const PROBE_MS = 250;

const NOTHING = Buffer.alloc(0);

export class Pause {
  readonly #client: Socket;
  readonly #below: Socket;
  #timer: NodeJS.Timeout | undefined;

  /** `below`: the TCP socket under TLS, which keeps to itself how an empty write went. */
  constructor(client: Socket, below: Socket) {
    this.#client = client;
    this.#below = below;
    client.on('close', () => this.#stop());
  }

  begin(): void {
    this.#client.pause();
    this.#timer ??= setInterval(() => this.#probe(), PROBE_MS);
  }

  end(): void {
    this.#stop();
    this.#client.resume();
  }

  #stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Sending no bytes puts nothing on the wire, and fails once the kernel has seen a reset. */
  #probe(): void {
    // The kernel watches who has bytes to take, and who has a time limit is given up without this: it would count as a sign of life.
    const watched = this.#client.writableLength > 0 || (this.#client.timeout ?? 0) > 0;
    if (!watched && this.#below.writable && this.#below.writableLength === 0) this.#below.write(NOTHING);
  }
}
