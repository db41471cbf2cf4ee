const BANS_MAX = 1024;

/**
 * Peers that broke a rule of the protocol. Until the end of its ban, a peer is not dialed, and its connections are
 * refused.
 */
export class PeerBans {
  /** End of each ban by session, in milliseconds of the caller's clock. At most BANS_MAX; the oldest is dropped. */
  readonly #until = new Map<string, number>();

  add(peer: string, until: number): void {
    this.#until.delete(peer);
    this.#until.set(peer, until);
    const [oldest] = this.#until.keys();
    if (this.#until.size > BANS_MAX && oldest !== undefined) this.#until.delete(oldest);
  }

  has(peer: string, now: number): boolean {
    const until = this.#until.get(peer);
    if (until === undefined) return false;
    if (now < until) return true;
    this.#until.delete(peer);
    return false;
  }
}
