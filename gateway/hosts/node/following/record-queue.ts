/** What a follower counted and the first must have: a queue on disk, handed over in order. The first knows by position what it has. */
import type { Database } from '../sqlite.ts';

/** Of one message: so many items, and bytes unless one alone has more. The first takes 16 MiB. */
const TOGETHER = 200;
const TOGETHER_BYTES = 4 * 1024 * 1024;
/** Beyond this the oldest make room: some 2 GiB, a month of a busy follower. */
const WAITING_MAX = 2_000_000;

export interface QueuedRecord {
  position: number;
  /** `usage`: rows for an hour; `settle`: what requests used, for limits; `months`: what a former first booked until it was deposed. */
  kind: 'usage' | 'settle' | 'months';
  /** Of the object that takes it: an hour, or whose limits. */
  name: string;
  /** JSON. */
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

  /** On disk when it returns. @throws Error where the disk takes nothing */
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
    const items: QueuedRecord[] = this.#database.rows(query, [TOGETHER]).map(({ position, kind, name, body }) => ({
      position: Number(position),
      kind: kind === 'settle' || kind === 'months' ? kind : 'usage',
      name: String(name),
      body: String(body),
    }));
    let bytes = 0;
    const over = items.findIndex(({ body }, at) => {
      bytes += Buffer.byteLength(body);
      return at > 0 && bytes > TOGETHER_BYTES;
    });
    return over === -1 ? items : items.slice(0, over);
  }

  /** The first has all up to `position`. */
  done(position: number): void {
    this.#database.rows('DELETE FROM hand_over WHERE position <= ?', [position]);
    const [row] = this.#database.rows('SELECT count(*) AS n FROM hand_over', []);
    this.#waiting = Number(row?.n ?? 0);
  }
}
