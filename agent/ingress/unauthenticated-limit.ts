import type { Socket } from 'node:net';

/**
 * Connections that have not shown a key yet. One more closes the oldest, so that slow clients cannot keep quick ones
 * out.
 */
const UNAUTHENTICATED_MAX = 128;

export class UnauthenticatedLimit {
  /** Oldest first. */
  readonly #sockets = new Set<Socket>();

  add(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    const [oldest] = this.#sockets;
    if (this.#sockets.size > UNAUTHENTICATED_MAX) oldest?.destroy();
  }

  /** The connection has shown the key and stays. */
  greet(socket: Socket): void {
    this.#sockets.delete(socket);
  }
}
