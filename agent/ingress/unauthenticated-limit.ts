import type { Socket } from 'node:net';

/** Connections that have shown no key yet. One more pushes the oldest out: slow ones cannot keep quick ones away. */
const STRANGERS_MAX = 128;

export class UnauthenticatedLimit {
  /** Oldest first. */
  readonly #sockets = new Set<Socket>();

  add(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    const [oldest] = this.#sockets;
    if (this.#sockets.size > STRANGERS_MAX) oldest?.destroy();
  }

  /** It showed the key, and may stay. */
  greet(socket: Socket): void {
    this.#sockets.delete(socket);
  }
}
