import type { ObjectStorage, Sql } from '../platform/object-context.ts';
import type { RequestTimeline } from './request-timeline.ts';

const RETENTION_MS = 7 * 24 * 60 * 60_000;
/** Maximum timelines, a kilobyte each. Beyond this the oldest are deleted. */
const TIMELINES_MAX = 50_000;
/** Number of inserted timelines between two deletions of old ones. */
const TRIM_EVERY = 1_000;
/** Maximum results of one search. Many requests may have the same id, because clients choose ids. */
export const TIMELINES_FOUND_MAX = 20;

/**
 * Maximum characters of one value in a statement: Cloudflare allows two million bytes, and a character has at most
 * three.
 */
const TEXT_MAX_CHARS = 600_000;

export interface RecordOwner {
  /** Id of the key. */
  key: string;
  user: string | undefined;
}

/** Timelines of the last days, in the SQLite database of one object. */
export class TimelineStore {
  readonly #sql: Sql;
  /**
   * The first insert after a wake also deletes old timelines. Otherwise an object that sleeps between few timelines
   * would keep them forever.
   */
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
    this.#sql.exec('DELETE FROM stories WHERE at <= ?', now - RETENTION_MS);
    this.#sql.exec(
      'DELETE FROM stories WHERE n <= (SELECT n FROM stories ORDER BY n DESC LIMIT 1 OFFSET ?)',
      TIMELINES_MAX,
    );
  }

  /**
   * Finds timelines by the client's id or the gateway's, newest first. `owner`: only requests of that key or user;
   * requests of other owners with the same id are skipped.
   */
  find(id: string, now: number, owner?: RecordOwner): RequestTimeline[] {
    const query = `SELECT story FROM stories WHERE (id = ? OR name = ?) AND at > ?
      ${owner === undefined ? '' : `AND (story ->> 'key' = ? OR (story ->> 'user' <> '' AND story ->> 'user' = ?))`} ORDER BY n DESC LIMIT ?`;
    const own = owner === undefined ? [] : [owner.key, owner.user ?? ''];
    const rows = this.#sql
      .exec<{ story: string }>(query, id, id, now - RETENTION_MS, ...own, TIMELINES_FOUND_MAX)
      .toArray();
    return rows.map(({ story: timeline }) => JSON.parse(timeline) as RequestTimeline);
  }
}

/**
 * Yields JSON arrays of the items, in order. Each fits into a value of a statement, unless a single item is too long.
 */
function* jsonTexts(items: Iterable<unknown>): Generator<string> {
  let texts: string[] = [];
  let chars = 0;
  for (const item of items) {
    const text = JSON.stringify(item);
    if (texts.length > 0 && chars + text.length > TEXT_MAX_CHARS) {
      yield `[${texts.join(',')}]`;
      [texts, chars] = [[], 0];
    }
    texts.push(text);
    chars += text.length + 1;
  }
  if (texts.length > 0) yield `[${texts.join(',')}]`;
}
