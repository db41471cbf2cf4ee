/** The gateways that follow this one. Who was heard lately is in memory; that they are there at all is on disk. */
import type { Database } from '../sqlite.ts';

/** Without a word for so long a follower is away: it may allow its own share of limits then, and this gateway allows the rest. */
export const SILENCE_MS = 4_000;
/** A follower that was not heard for so long is forgotten. */
const FORGOTTEN_MS = 7 * 86_400_000;
export const FOLLOWERS_MAX = 8;

export interface Follower {
  /** Name of its gateway key. */
  key: string;
  url: string;
  version: string;
  seenAt: number;
  connected: boolean;
  /** Records that wait there for this gateway. */
  waiting: number;
}

export class MemberTable {
  readonly #database: Database;
  readonly #now: () => number;
  /** Monotonic milliseconds, by key. */
  readonly #heard = new Map<string, { at: number; waiting: number }>();

  constructor(database: Database, monotonicNow: () => number) {
    this.#database = database;
    this.#now = monotonicNow;
    database.script(`CREATE TABLE IF NOT EXISTS followers (key TEXT PRIMARY KEY, url TEXT NOT NULL, version TEXT NOT NULL, seen_at INTEGER NOT NULL);
      CREATE TABLE IF NOT EXISTS taken_over (key TEXT PRIMARY KEY, position INTEGER NOT NULL)`);
  }

  /** @returns false: there are too many already */
  heard(key: string, url: string, version: string, waiting: number): boolean {
    const known = this.#heard.get(key);
    const before = this.list().find((one) => one.key === key);
    if (before === undefined && this.list().length >= FOLLOWERS_MAX) return false;
    this.#heard.set(key, { at: this.#now(), waiting });
    // Its row is for restarts: once a minute is enough.
    const isNews = known === undefined || before?.url !== url || before.version !== version;
    if (isNews || Date.now() - (before?.seenAt ?? 0) > 60_000)
      this.#database.rows('INSERT OR REPLACE INTO followers (key, url, version, seen_at) VALUES (?, ?, ?, ?)', [
        key,
        url,
        version,
        Date.now(),
      ]);
    return true;
  }

  list(): Follower[] {
    const rows = this.#database.rows(
      'SELECT key, url, version, seen_at FROM followers WHERE seen_at > ? ORDER BY key',
      [Date.now() - FORGOTTEN_MS],
    );
    return rows.map(({ key, url, version, seen_at }) => {
      const heard = this.#heard.get(String(key));
      return {
        key: String(key),
        url: String(url),
        version: String(version),
        seenAt: Number(seen_at),
        connected: heard !== undefined && this.#now() - heard.at < SILENCE_MS,
        waiting: heard?.waiting ?? 0,
      };
    });
  }

  /** The operator took it away. */
  remove(key: string): boolean {
    this.#heard.delete(key);
    const known = this.#database.rows('SELECT 1 AS x FROM followers WHERE key = ?', [key]).length > 0;
    this.#database.rows('DELETE FROM followers WHERE key = ?', [key]);
    return known;
  }

  /** Up to which position a follower's records are here. */
  taken(key: string): number {
    const [row] = this.#database.rows('SELECT position FROM taken_over WHERE key = ?', [key]);
    return Number(row?.position ?? 0);
  }

  take(key: string, position: number): void {
    this.#database.rows('INSERT OR REPLACE INTO taken_over (key, position) VALUES (?, ?)', [key, position]);
  }
}
