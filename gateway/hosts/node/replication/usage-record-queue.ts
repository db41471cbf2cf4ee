/**
 * Usage that a follower recorded for the primary: a queue on disk, sent in order. The primary stores the position up to
 * which it has received items.
 */
import type { Database } from '../sqlite.ts';

/** Maximum items of one message, and maximum bytes, unless a single item is larger. The primary accepts 16 MiB. */
const ITEMS_PER_MESSAGE = 200;
const MESSAGE_TARGET_BYTES = 4 * 1024 * 1024;
/** Maximum items, about 2 GiB: a month of a busy follower. Above it the oldest items are dropped. */
const WAITING_MAX = 2_000_000;

export interface QueuedRecord {
  position: number;
  /**
   * `usage`: rows of an hour. `settle`: usage of requests, for limits. `months`: monthly counts of a former primary
   * from before it was deposed.
   */
  kind: 'usage' | 'settle' | 'months';
  /** Name of the object that receives the item: an hour, or the owner of limits. */
  name: string;
  /** The item as JSON. */
  body: string;
}

export class RecordQueue {
  readonly #database: Database;
  #waiting: number;
  lost = 0;

  constructor(database: Database) {
    this.#database = database;
    const [row] = database.rows('SELECT count(*) AS n FROM hand_over', []);
    this.#waiting = Number(row?.n ?? 0);
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Stores an item. It is on disk when this returns. @throws Error if the disk is full */
  add(kind: QueuedRecord['kind'], name: string, body: unknown): void {
    this.#database.rows('INSERT INTO hand_over (kind, name, body) VALUES (?, ?, ?)', [
      kind,
      name,
      JSON.stringify(body),
    ]);
    this.#waiting++;
    if (this.#waiting <= WAITING_MAX) return;
    this.#database.rows('DELETE FROM hand_over WHERE position = (SELECT min(position) FROM hand_over)', []);
    this.#waiting--;
    this.lost++;
  }

  oldest(): QueuedRecord[] {
    const query = 'SELECT position, kind, name, body FROM hand_over ORDER BY position LIMIT ?';
    const items: QueuedRecord[] = this.#database
      .rows(query, [ITEMS_PER_MESSAGE])
      .map(({ position, kind, name, body }) => ({
        position: Number(position),
        kind: kind === 'settle' || kind === 'months' ? kind : 'usage',
        name: String(name),
        body: String(body),
      }));
    let bytes = 0;
    const over = items.findIndex(({ body }, at) => {
      bytes += Buffer.byteLength(body);
      return at > 0 && bytes > MESSAGE_TARGET_BYTES;
    });
    return over === -1 ? items : items.slice(0, over);
  }

  /** Deletes items up to `position`, which the primary has received. */
  done(position: number): void {
    this.#database.rows('DELETE FROM hand_over WHERE position <= ?', [position]);
    const [row] = this.#database.rows('SELECT count(*) AS n FROM hand_over', []);
    this.#waiting = Number(row?.n ?? 0);
  }
}
