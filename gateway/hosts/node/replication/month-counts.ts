/**
 * Stores monthly usage, separately for each gateway that recorded it. The primary sends all counts to its followers, so
 * that a promoted follower continues with them. A former primary sends its own counts to the new primary. A gateway's
 * count only grows, so the larger value is the newer one.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { errorText } from '../../../../shared/text/error-text.ts';
import type { LimitsObject, MonthCount } from '../../../accounts/limits/limits-object.ts';
import type { ObjectNamespace } from '../../../platform/object-context.ts';
import { writeIfPossible } from '../../../platform/storage/storage-health.ts';
import type { Database } from '../sqlite.ts';
import { LINK_ANSWER_MAX_BYTES } from './signed-gateway-client.ts';
import type { RecordQueue } from './usage-record-queue.ts';

/** Maximum number of subjects in one answer. */
const PAGE = 50;
/** Maximum number of counts of one subject in one answer. A follower refuses an answer with more than 100,000. */
const PAGE_COUNTS = 50_000;
/** Maximum size of one answer. A follower refuses an answer above LINK_ANSWER_MAX_BYTES. */
const PAGE_BYTES = LINK_ANSWER_MAX_BYTES / 2;
/**
 * Maximum number of counts in one message to the new primary, which refuses messages above 8 MiB; a refused message
 * would block all later ones. A count takes at most 3.2 KB as JSON, which writes a control character of its id as six
 * bytes.
 */
const HANDED_OVER_MAX = 2_000;
const RETRY_MS = 5_000;

export interface SubjectCounts {
  subject: string;
  month: string;
  counts: MonthCount[];
}

export interface MonthCountsPage {
  items: SubjectCounts[];
  /** Number after which the next page begins. */
  seq: number;
  more: boolean;
  /** The last count on this page, if not all counts of its subject fit. The next page continues after it. */
  after?: CountPosition | undefined;
}

export interface CountPosition {
  subject: string;
  origin: string;
  id: string;
}

export class MonthCounts {
  readonly #database: Database;
  /** Name of this gateway's counts. Unlike the gateway's key it never changes. */
  readonly own: string;
  #last: number;

  /** @param key name of this gateway's key */
  constructor(database: Database, key: string) {
    this.#database = database;
    const [origin] = database.rows('SELECT name FROM budget_origin', []);
    this.own = String(origin?.name ?? key);
    if (origin === undefined) writeIfPossible(() => this.#fixName());
    const [row] = database.rows('SELECT max(seq) AS seq FROM budgets', []);
    this.#last = Number(row?.seq ?? 0);
  }

  /** Number of the last change. */
  get last(): number {
    return this.#last;
  }

  /** Stores the name, so that it stays when the gateway's key changes. */
  #fixName(): void {
    this.#database.rows('INSERT OR IGNORE INTO budget_origin (name) VALUES (?)', [this.own]);
  }

  /** Marks a subject as changed before its usage is recorded, so that a crash in between loses no count. */
  note(subject: string): void {
    if (this.#last === 0) this.#fixName();
    this.#database.rows('INSERT OR REPLACE INTO budgets (subject, seq) VALUES (?, ?)', [subject, ++this.#last]);
  }

  /**
   * Returns the subjects that changed after `seq`, with their current counts. If the page begins with `after.subject`,
   * only its counts after that position are returned.
   */
  async since(seq: number, limits: ObjectNamespace<LimitsObject>, after?: CountPosition): Promise<MonthCountsPage> {
    const rows = this.#database.rows('SELECT subject, seq FROM budgets WHERE seq > ? ORDER BY seq LIMIT ?', [
      seq,
      PAGE + 1,
    ]);
    const page: MonthCountsPage = { items: [], seq, more: false };
    let room = PAGE_BYTES;
    for (const row of rows) {
      if (page.items.length === PAGE) return { ...page, more: true };
      const subject = String(row.subject);
      const { month, counts: all } = await this.counts(subject, limits);
      // Counts are sent in the order of their positions, so that a later page can continue after the last count that
      // was sent. If a count before that position changes meanwhile, the whole subject is sent again.
      const left = all
        .filter((count) => after?.subject !== subject || inOrder(after, count) < 0)
        .toSorted((a, b) => inOrder(a, b));
      const counts: MonthCount[] = [];
      for (const count of left) {
        const bytes = Buffer.byteLength(JSON.stringify(count)) + 1;
        if (bytes > room || counts.length === PAGE_COUNTS) break;
        room -= bytes;
        counts.push(count);
      }
      const last = counts.at(-1);
      if (counts.length < left.length && (last === undefined || page.items.length > 0)) return { ...page, more: true };
      page.items.push({ subject, month, counts });
      if (counts.length < left.length && last !== undefined)
        return { ...page, more: true, after: { subject, origin: last.origin, id: last.id } };
      page.seq = Number(row.seq);
    }
    return page;
  }

  async counts(subject: string, limits: ObjectNamespace<LimitsObject>): Promise<SubjectCounts> {
    const month = monthNow();
    const counts = await limits.getByName(subject).counts(month);
    return { subject, month, counts: counts.map((count) => ({ ...count, origin: count.origin || this.own })) };
  }

  /** Stores another gateway's counts, except those about this gateway: its own counts are newer. */
  async store({ subject, month, counts }: SubjectCounts, limits: ObjectNamespace<LimitsObject>): Promise<void> {
    const others = counts.filter(({ origin }) => origin !== this.own);
    this.note(subject);
    await limits.getByName(subject).hearCounts(month, others);
  }

  /** Called when this gateway is deposed as the primary. Marks everything that it recorded to be handed over. */
  depose(): void {
    this.#database.rows('INSERT OR IGNORE INTO past_budgets (subject) SELECT subject FROM budgets', []);
  }

  /**
   * Queues what `depose` marked; later usage waits for it. If the disk is full, this is retried, and usage reports wait
   * at the nodes. Never rejects.
   */
  async handOver(
    limits: ObjectNamespace<LimitsObject>,
    queue: Pick<RecordQueue, 'add'>,
    log: (line: string) => void,
  ): Promise<void> {
    try {
      for (const { subject } of this.#database.rows('SELECT subject FROM past_budgets', [])) {
        const { counts, ...item } = await this.counts(String(subject), limits);
        for (let at = 0; at < counts.length; at += HANDED_OVER_MAX)
          queue.add('months', item.subject, { ...item, counts: counts.slice(at, at + HANDED_OVER_MAX) });
        this.#database.rows('DELETE FROM past_budgets WHERE subject = ?', [String(subject)]);
      }
    } catch (error) {
      log(`cannot hand over monthly usage to the primary yet; trying again later: ${errorText(error)}`);
      await delay(RETRY_MS);
      return this.handOver(limits, queue, log);
    }
  }
}

function inOrder(a: Pick<MonthCount, 'origin' | 'id'>, b: Pick<MonthCount, 'origin' | 'id'>): number {
  if (a.origin !== b.origin) return a.origin < b.origin ? -1 : 1;
  return a.id === b.id ? 0 : a.id < b.id ? -1 : 1;
}

function monthNow(): string {
  return new Date().toISOString().slice(0, 7);
}
