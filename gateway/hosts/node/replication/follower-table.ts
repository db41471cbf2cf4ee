/** The followers of this gateway. Recent contact is kept in memory; the list is stored on disk. */
import type { Database } from '../sqlite.ts';

/** A follower without contact for this time is forgotten. */
const FORGOTTEN_MS = 7 * 86_400_000;
const FOLLOWERS_MAX = 8;
const ROW_EVERY_MS = 60_000;

export interface FollowerEntry {
  /** Name of the follower's gateway key. */
  key: string;
  url: string;
  version: string;
  seenAt: number;
  connected: boolean;
  /** Number of records that wait at the follower for this gateway. */
  waiting: number;
}

interface KnownFollower {
  url: string;
  version: string;
  /** Last contact as stored in the row; milliseconds since the epoch. */
  seenAt: number;
  /** Last contact; milliseconds of a monotonic clock. Absent: none since this process started. */
  heardAt?: number;
  /** The follower counts as disconnected after this time without contact. The follower sends it. */
  silenceMs?: number;
  waiting: number;
}

export class FollowerTable {
  readonly #database: Database;
  readonly #now: () => number;
  readonly #known = new Map<string, KnownFollower>();

  constructor(database: Database, monotonicNow: () => number) {
    this.#database = database;
    this.#now = monotonicNow;
    for (const { key, url, version, seen_at } of database.rows('SELECT key, url, version, seen_at FROM followers', []))
      this.#known.set(String(key), { url: String(url), version: String(version), seenAt: Number(seen_at), waiting: 0 });
  }

  /** Records contact with a follower. @returns false if there are too many followers already */
  update(key: string, url: string, version: string, waiting: number, silenceMs: number): boolean {
    const before = this.#known.get(key);
    this.#replace(key, url);
    if (before === undefined && this.list().length >= FOLLOWERS_MAX) return false;
    // The row is only read after a restart, so it is updated rarely.
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
   * Removes the former entry of a gateway that has a new key at the same URL, because each entry gets a share of each
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

  /** Removes a follower on the operator's request. */
  remove(key: string): boolean {
    const known = this.#known.delete(key);
    this.#database.rows('DELETE FROM followers WHERE key = ?', [key]);
    return known;
  }

  /**
   * Returns the position up to which a follower's records were received. `origin`: the name of the follower's first
   * key.
   */
  taken(origin: string): number {
    const [row] = this.#database.rows('SELECT position FROM taken_over WHERE key = ?', [origin]);
    return Number(row?.position ?? 0);
  }

  take(origin: string, position: number): void {
    this.#database.rows('INSERT OR REPLACE INTO taken_over (key, position) VALUES (?, ?)', [origin, position]);
  }
}
