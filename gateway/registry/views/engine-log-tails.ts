import { type DepartureCause, departureCause } from '../../../shared/lattice/departure-cause.ts';
import { isRecent } from '../../../shared/timing/is-recent.ts';
import type { ObjectStorage, Sql } from '../../platform/object-context.ts';

const RETENTION_MS = 7 * 24 * 60 * 60_000;
/**
 * Maximum logs, 250 MiB in total. Logs of normal ends are dropped first, then the oldest log of the provider with the
 * most logs.
 */
const TAILS_MAX = 1_000;
/**
 * Causes of ends that a job or a person intended. A cluster has thousands of such ends a day, but people look for logs
 * of failures.
 */
const NORMAL: ReadonlySet<DepartureCause> = new Set<DepartureCause>([
  'drained',
  'cancelled',
  'time-limit',
  'preempted',
  'stopped',
  'evicted',
]);
/**
 * Minimum interval between two logs of a session. An engine fails once, so an agent that keeps sending logs is broken,
 * and each log may have 256 KiB.
 */
const LOG_INTERVAL_MS = 10_000;

export interface LogTail {
  session: string;
  provider: string;
  /** When the log was stored; milliseconds since the epoch. */
  at: number;
  text: string;
}

export class LogTails {
  readonly #sql: Sql;
  readonly #max: number;

  /** Uses the storage of NodeEventLog, because its table contains why sessions ended. */
  constructor({ sql }: ObjectStorage, max = TAILS_MAX) {
    this.#sql = sql;
    this.#max = max;
    sql.exec(
      'CREATE TABLE IF NOT EXISTS logs (session TEXT PRIMARY KEY, provider TEXT NOT NULL, at INTEGER NOT NULL, text TEXT NOT NULL)',
    );
  }

  /**
   * Stores a log in place of the session's previous one. False: the previous one was stored less than LOG_INTERVAL_MS
   * ago.
   */
  put({ session, provider, at, text }: LogTail): boolean {
    const before = this.get(session, at)?.at;
    if (before !== undefined && isRecent(LOG_INTERVAL_MS, before, at)) return false;
    this.#sql.exec(
      'INSERT OR REPLACE INTO logs (session, provider, at, text) VALUES (?, ?, ?, ?)',
      session,
      provider,
      at,
      text,
    );
    this.sweep(at);
    return true;
  }

  get(session: string, now: number): LogTail | undefined {
    const query = 'SELECT session, provider, at, text FROM logs WHERE session = ? AND at > ?';
    return [
      ...this.#sql.exec<{ session: string; provider: string; at: number; text: string }>(
        query,
        session,
        now - RETENTION_MS,
      ),
    ][0];
  }

  sweep(now: number): void {
    this.#sql.exec('DELETE FROM logs WHERE at <= ?', now - RETENTION_MS);
    const { count } = this.#sql.exec<{ count: number }>('SELECT count(*) AS count FROM logs').one();
    if (count <= this.#max) return;
    for (const session of this.#leastWanted(count - this.#max))
      this.#sql.exec('DELETE FROM logs WHERE session = ?', session);
  }

  #leastWanted(count: number): string[] {
    const query = `SELECT session, provider,
        (SELECT reason FROM history WHERE session = logs.session AND event = 'left' ORDER BY id DESC LIMIT 1) AS reason
      FROM logs ORDER BY at DESC`;
    const seen = new Map<string, number>();
    const ranked = this.#sql
      .exec<{ session: string; provider: string; reason: string | null }>(query)
      .toArray()
      .map(({ session, provider, reason }) => {
        const isNormal = reason !== null && NORMAL.has(departureCause(reason));
        const kind = `${provider} ${isNormal}`;
        const nth = (seen.get(kind) ?? 0) + 1;
        seen.set(kind, nth);
        return { session, isNormal, nth };
      });
    // The query returns the newest logs first, and the sort is stable. So of two logs with the same rank, the older one
    // comes later and is dropped first.
    ranked.sort((a, b) => Number(a.isNormal) - Number(b.isNormal) || a.nth - b.nth);
    return ranked.slice(-count).map(({ session }) => session);
  }
}
