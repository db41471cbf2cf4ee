/** The gateways that follow this one. Recent contact is kept in memory; their existence is stored on disk. */
import type { Database } from '../sqlite.ts';

/** After this silence a follower is forgotten. */
const FORGOTTEN_MS = 7 * 86_400_000;
const FOLLOWERS_MAX = 8;
const ROW_EVERY_MS = 60_000;

export interface FollowerEntry {
  /** Name of its gateway key. */
  key: string;
  url: string;
  version: string;
  seenAt: number;
  connected: boolean;
  /** Records that wait there for this gateway. */
  waiting: number;
}

interface Known {
  url: string;
  version: string;
  /** Milliseconds since 1970, as stored in its row. */
  seenAt: number;
  /** Milliseconds of a monotonic clock; absent: no contact since this process started. */
  heardAt?: number;
  /** After this silence it is away, as the follower said itself. */
  silenceMs?: number;
  waiting: number;
}

export class FollowerTable {
  readonly #database: Database;
  readonly #now: () => number;
  readonly #known = new Map<string, Known>();

  constructor(database: Database, monotonicNow: () => number) {
    this.#database = database;
    this.#now = monotonicNow;
    for (const { key, url, version, seen_at } of database.rows('SELECT key, url, version, seen_at FROM followers', []))
      this.#known.set(String(key), { url: String(url), version: String(version), seenAt: Number(seen_at), waiting: 0 });
  }

  /** @returns false: there are too many already */
  heard(key: string, url: string, version: string, waiting: number, silenceMs: number): boolean {
    const before = this.#known.get(key);
    this.#replace(key, url);
    if (before === undefined && this.list().length >= FOLLOWERS_MAX) return false;
    // Its row is only for restarts, so it is updated rarely.
    const isOld = before === undefined || Date.now() - before.seenAt > ROW_EVERY_MS;
    const isNews = isOld || before.url !== url || before.version !== version;
    const seenAt = isNews ? Date.now() : before.seenAt;
    this.#known.set(key, { url, version, seenAt, heardAt: this.#now(), silenceMs, waiting });
    if (isNews)
      this.#database.rows('INSERT OR REPLACE INTO followers (key, url, version, seen_at) VALUES (?, ?, ?, ?)', [
        key,
        url,
        version,
        seenAt,
      ]);
    return true;
  }

  /**
   * A gateway with a new key at the same URL replaces its former entry, which would otherwise keep a share of each
   * limit.
   */
  #replace(key: string, url: string): void {
    for (const former of this.list())
      if (former.key !== key && former.url === url && !former.connected) this.remove(former.key);
  }

  list(): FollowerEntry[] {
    const since = Date.now() - FORGOTTEN_MS;
    return [...this.#known]
      .filter(([, { seenAt }]) => seenAt > since)
      .map(([key, { url, version, seenAt, heardAt, silenceMs = 0, waiting }]) => {
        const connected = heardAt !== undefined && this.#now() - heardAt < silenceMs;
        return { key, url, version, seenAt: connected ? Date.now() : seenAt, connected, waiting };
      });
  }

  /** The operator removed it. */
  remove(key: string): boolean {
    const known = this.#known.delete(key);
    this.#database.rows('DELETE FROM followers WHERE key = ?', [key]);
    return known;
  }

  /** The position up to which a follower's records were received. `origin`: the name of its first key. */
  taken(origin: string): number {
    const [row] = this.#database.rows('SELECT position FROM taken_over WHERE key = ?', [origin]);
    return Number(row?.position ?? 0);
  }

  take(origin: string, position: number): void {
    this.#database.rows('INSERT OR REPLACE INTO taken_over (key, position) VALUES (?, ?)', [origin, position]);
  }
}
