import type { ObjectStorage, Sql } from '../platform/object-context.ts';
import { jsonTexts } from '../platform/storage/json-texts.ts';
import type { RequestTimeline } from './request-timeline.ts';

const KEPT_MS = 7 * 24 * 60 * 60_000;
/** A kilobyte each; the oldest go first. */
const TIMELINES_MAX = 50_000;
/** Looked after once in so many. */
const TRIM_EVERY = 1_000;
/** One id may be that of many requests: clients choose them. */
export const TIMELINES_FOUND_MAX = 20;

export interface RecordOwner {
  /** Its id. */
  key: string;
  user: string | undefined;
}

/** Stories of the last days, in the SQLite of one object. */
export class TimelineStore {
  readonly #sql: Sql;
  /** With the first after a wake, too: an object that sleeps between few stories would keep them for ever. */
  #untrimmed = TRIM_EVERY;

  constructor({ sql }: Pick<ObjectStorage, 'sql'>) {
    this.#sql = sql;
    sql.exec(
      `CREATE TABLE IF NOT EXISTS stories (n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL, story TEXT NOT NULL);
       CREATE INDEX IF NOT EXISTS stories_id ON stories (id);
       CREATE INDEX IF NOT EXISTS stories_name ON stories (name)`,
    );
  }

  add(timelines: readonly RequestTimeline[], now: number): void {
    if (timelines.length === 0) return;
    for (const text of jsonTexts(timelines))
      this.#sql.exec(
        `INSERT INTO stories (id, name, at, story) SELECT value ->> 'id', value ->> 'name', value ->> 'at', value FROM json_each(?)`,
        text,
      );
    this.#untrimmed += timelines.length;
    if (this.#untrimmed < TRIM_EVERY) return;
    this.#untrimmed = 0;
    this.#sql.exec('DELETE FROM stories WHERE at <= ?', now - KEPT_MS);
    this.#sql.exec(
      'DELETE FROM stories WHERE n <= (SELECT n FROM stories ORDER BY n DESC LIMIT 1 OFFSET ?)',
      TIMELINES_MAX,
    );
  }

  /** By the client's id or ours, the newest first. `whose`: of that key or person alone; others' requests with the same id are passed over. */
  find(id: string, now: number, whose?: RecordOwner): RequestTimeline[] {
    const query = `SELECT story FROM stories WHERE (id = ? OR name = ?) AND at > ?
      ${whose === undefined ? '' : `AND (story ->> 'key' = ? OR (story ->> 'user' <> '' AND story ->> 'user' = ?))`} ORDER BY n DESC LIMIT ?`;
    const own = whose === undefined ? [] : [whose.key, whose.user ?? ''];
    const rows = this.#sql.exec<{ story: string }>(query, id, id, now - KEPT_MS, ...own, TIMELINES_FOUND_MAX).toArray();
    return rows.map(({ story: timeline }) => JSON.parse(timeline) as RequestTimeline);
  }
}
