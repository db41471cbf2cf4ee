import type { Socket } from 'node:net';

/**
 * Maximum number of connections that have not authenticated. One more closes the oldest, so that slow clients cannot
 * keep quick ones out.
 */
const UNAUTHENTICATED_MAX = 128;

export class UnauthenticatedLimit {
  /** Connections that have not authenticated, oldest first. */
  readonly #sockets = new Set<Socket>();

  add(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    const [oldest] = this.#sockets;
    if (this.#sockets.size > UNAUTHENTICATED_MAX) oldest?.destroy();
  }

  /** The connection has authenticated and no longer counts. */
  remove(socket: Socket): void {
    this.#sockets.delete(socket);
  }
}
