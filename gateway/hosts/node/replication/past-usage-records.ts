/**
 * Hands over usage records that a former primary recorded as the primary, because only the new primary keeps the
 * institution's records.
 */
import { existsSync, readdirSync } from 'node:fs';
import { errorText } from '../../../../shared/text/error-text.ts';
import type { ObjectNamespace } from '../../../platform/object-context.ts';
import type { UsageObject } from '../../../usage/hour/usage-hour-object.ts';
import { objectName } from '../object-file-name.ts';
import type { Database } from '../sqlite.ts';
import type { RecordQueue } from './usage-record-queue.ts';

/** Maximum rows per message to the primary. */
const PAGE_ROWS = 200;
/** If this many messages are queued, no more records are read for now. */
const WAITING_MAX = 1_000;
const WAIT_MS = 1_000;

interface PastRecordsOptions {
  database: Database;
  /** Directory of the hours' files. */
  directory: string;
  usage: ObjectNamespace<UsageObject>;
  records: RecordQueue;
  log(line: string): void;
}

/**
 * Queues the rows of one hour and then removes the hour's mark. After a crash between the two, the rows are queued
 * again: the new primary recognizes each row by its session and stream.
 */
export class PastRecords {
  readonly #options: PastRecordsOptions;
  #running = false;
  #stopped = false;

  constructor(options: PastRecordsOptions) {
    this.#options = options;
  }

  /**
   * Call this before this gateway follows `primary` (name of the primary's key). Marks the hours to hand over. Rows
   * that the new primary recorded itself are not handed over.
   */
  note(primary: string): void {
    const { directory } = this.#options;
    const files = existsSync(directory) ? readdirSync(directory) : [];
    for (const name of files.flatMap((file) => objectName(file) ?? []))
      this.#options.database.rows('INSERT OR REPLACE INTO past_hours (name, except_of) VALUES (?, ?)', [
        name,
        primary.slice(0, 8),
      ]);
  }

  /** Hands over the marked hours. Never rejects. */
  async run(): Promise<void> {
    const { database, log } = this.#options;
    if (this.#running) return;
    this.#running = true;
    try {
      for (;;) {
        const [hour] = database.rows('SELECT name, except_of FROM past_hours ORDER BY name DESC LIMIT 1', []);
        if (hour === undefined || this.#stopped) return;
        await this.#hour(String(hour.name), `@${hour.except_of}`);
        if (!this.#stopped) database.rows('DELETE FROM past_hours WHERE name = ?', [hour.name ?? null]);
      }
    } catch (error) {
      log(`cannot hand over earlier usage records to the primary; trying again at the next start: ${errorText(error)}`);
    } finally {
      this.#running = false;
    }
  }

  stop(): void {
    this.#stopped = true;
  }

  async #hour(name: string, ofFirst: string): Promise<void> {
    const { usage, records } = this.#options;
    const hour = usage.getByName(name);
    for (let after = 0; !this.#stopped; ) {
      while (records.waiting > WAITING_MAX && !this.#stopped)
        await new Promise((resolve) => setTimeout(resolve, WAIT_MS).unref());
      const page = await hour.page(after, PAGE_ROWS, false);
      const rows = page.map(({ row }) => row).filter(({ session }) => !session.endsWith(ofFirst));
      if (rows.length > 0) records.add('usage', name, rows);
      if (page.length < PAGE_ROWS) return;
      after = page.at(-1)?.n ?? after;
    }
  }
}
