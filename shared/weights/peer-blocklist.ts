/** Blocks peers that failed to send good pieces, by the rule of TaskVine (cctools, `vine_blocklist.c`). */

/** How long a peer is blocked after a failure. After this time a temporary problem is probably over. */
const REST_MS = 15_000;
/** A peer is blocked for BAN_MS if its last STREAK_MAX pieces were bad and no more of its pieces were good than bad. */
const STREAK_MAX = 5;
const BAN_MS = 10 * 60_000;
const PEERS_MAX = 1024;

interface Row {
  good: number;
  bad: number;
  streak: number;
  until: number;
}

export class PeerBlocklist {
  /** Results by peer, the least recently failed peer first. At most PEERS_MAX. */
  readonly #rows = new Map<string, Row>();

  succeeded(peer: string): void {
    const row = this.#rows.get(peer);
    if (row === undefined) return;
    row.good++;
    row.streak = 0;
  }

  failed(peer: string, now: number): void {
    const row = this.#rows.get(peer) ?? { good: 0, bad: 0, streak: 0, until: 0 };
    row.bad++;
    row.streak++;
    row.until = now + (row.streak >= STREAK_MAX && row.bad >= row.good ? BAN_MS : REST_MS);
    this.#rows.delete(peer);
    this.#rows.set(peer, row);
    const [oldest] = this.#rows.keys();
    if (this.#rows.size > PEERS_MAX && oldest !== undefined) this.#rows.delete(oldest);
  }

  blocked(now: number): string[] {
    return [...this.#rows].filter(([, { until }]) => until > now).map(([peer]) => peer);
  }
}
