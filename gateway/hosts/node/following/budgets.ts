/**
 * Tokens of the running month, by the gateway that booked them. The first tells them to its followers, so that a promoted one goes on with
 * them; a former first tells the new one what it booked until then. Each gateway's count only grows, so the greater word is the newer one.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { LimitsObject, MonthCount } from '../../../accounts/limits/limits-object.ts';
import type { ObjectNamespace } from '../../../object-context.ts';
import { writeIfPossible } from '../../../storage/health.ts';
import type { Database } from '../sqlite.ts';
import type { HandOver } from './hand-over.ts';
import { ANSWER_MAX_BYTES } from './link.ts';

/** Subjects of one answer, and bytes of it where one alone does not have more. A follower reads ANSWER_MAX_BYTES of one. */
const PAGE = 50;
const PAGE_BYTES = ANSWER_MAX_BYTES / 2;
/** Of one item that is handed over: the first takes 100,000 in 8 MiB, and what it does not take holds up all that waits behind it. */
const HANDED_OVER_MAX = 5_000;
const AGAIN_MS = 5_000;

export interface SubjectCounts {
  subject: string;
  month: string;
  counts: MonthCount[];
}

export interface BudgetsPage {
  items: SubjectCounts[];
  /** To ask from next. */
  seq: number;
  more: boolean;
}

export class Budgets {
  readonly #database: Database;
  /** Names this gateway's counts. Its key may change, this does not. */
  readonly own: string;
  #last: number;

  /** `key`: name of this gateway's key. */
  constructor(database: Database, key: string) {
    this.#database = database;
    const [origin] = database.rows('SELECT name FROM budget_origin', []);
    this.own = String(origin?.name ?? key);
    if (origin === undefined) writeIfPossible(() => this.#nameItself());
    const [row] = database.rows('SELECT max(seq) AS seq FROM budgets', []);
    this.#last = Number(row?.seq ?? 0);
  }

  /** The number of the last change. */
  get last(): number {
    return this.#last;
  }

  /** From now on, whatever its key. */
  #nameItself(): void {
    this.#database.rows('INSERT OR IGNORE INTO budget_origin (name) VALUES (?)', [this.own]);
  }

  /** Something is about to be booked for a subject: noted before, so that a crash between the two loses no count. */
  note(subject: string): void {
    if (this.#last === 0) this.#nameItself();
    this.#database.rows('INSERT OR REPLACE INTO budgets (subject, seq) VALUES (?, ?)', [subject, ++this.#last]);
  }

  /** Subjects that changed after `seq`, as they are now. */
  async since(seq: number, limits: ObjectNamespace<LimitsObject>): Promise<BudgetsPage> {
    const rows = this.#database.rows('SELECT subject, seq FROM budgets WHERE seq > ? ORDER BY seq LIMIT ?', [
      seq,
      PAGE + 1,
    ]);
    const page: BudgetsPage = { items: [], seq, more: false };
    let bytes = 0;
    for (const row of rows) {
      const item = await this.counts(String(row.subject), limits);
      bytes += Buffer.byteLength(JSON.stringify(item));
      if (page.items.length === PAGE || (page.items.length > 0 && bytes > PAGE_BYTES)) return { ...page, more: true };
      page.items.push(item);
      page.seq = Number(row.seq);
    }
    return page;
  }

  async counts(subject: string, limits: ObjectNamespace<LimitsObject>): Promise<SubjectCounts> {
    const month = monthNow();
    const counts = await limits.getByName(subject).counts(month);
    return { subject, month, counts: counts.map((count) => ({ ...count, origin: count.origin || this.own })) };
  }

  /** Another gateway's word. What it says of this one is older than what this one knows. */
  async hear({ subject, month, counts }: SubjectCounts, limits: ObjectNamespace<LimitsObject>): Promise<void> {
    const others = counts.filter(({ origin }) => origin !== this.own);
    this.note(subject);
    await limits.getByName(subject).hearCounts(month, others);
  }

  /** This gateway was deposed: all that it booked is still to be told. */
  depose(): void {
    this.#database.rows('INSERT OR IGNORE INTO past_budgets (subject) SELECT subject FROM budgets', []);
  }

  /**
   * Queues what `depose` noted; what is booked next waits for that. Where the disk takes nothing it is tried again, and what is booked waits
   * with the nodes. Never rejects.
   */
  async handOver(
    limits: ObjectNamespace<LimitsObject>,
    queue: Pick<HandOver, 'add'>,
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
      log(`budgets are handed over later: ${error instanceof Error ? error.message : error}`);
      await delay(AGAIN_MS);
      return this.handOver(limits, queue, log);
    }
  }
}

function monthNow(): string {
  return new Date().toISOString().slice(0, 7);
}
