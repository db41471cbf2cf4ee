/** Reads the changes of accounts that other processes made, once a second. */
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import type { Account } from '../../../accounts/account.ts';
import { AccountChanges } from '../../../accounts/account-changes.ts';
import { forgetAccounts } from '../../../accounts/authenticate.ts';
import type { Connection } from '../postgresql/postgres-pool.ts';

/** A change takes effect at all processes within this time and that of one statement. */
const READ_MS = 1_000;
/** Maximum lines of one reading. The rest follows immediately. */
const LINES_MAX = 1_000;

export class AuditLogReader {
  readonly #connection: Connection;
  readonly #log: (line: string) => void;
  readonly #changes = new AccountChanges();
  /** The last line that was read; undefined before the first reading. */
  #last: number | undefined;
  #timer: NodeJS.Timeout | undefined;
  #reading: Promise<void> | undefined;

  constructor(connection: Connection, log: (line: string) => void) {
    this.#connection = connection;
    this.#log = log;
  }

  isStale(account: Parameters<AccountChanges['isStale']>[0] & Pick<Account, 'seen'>): boolean {
    return this.#changes.isStale(account);
  }

  start(): void {
    this.#timer = setInterval(() => neverRejects(this.read()), READ_MS);
    this.#timer.unref();
  }

  /** Concurrent calls share one reading. Never rejects: the next reading finds what this one did not. */
  read(): Promise<void> {
    this.#reading ??= this.#read()
      .catch(() => {})
      .finally(() => {
        this.#reading = undefined;
      });
    return this.#reading;
  }

  async #read(): Promise<void> {
    const newest = await this.#newest();
    this.#last ??= newest;
    if (newest < this.#last) {
      this.#log(`PostgreSQL has lost ${this.#last - newest} changes of accounts: all accounts are read again`);
      this.#last = newest;
      forgetAccounts();
    }
    const query = 'SELECT id, object, action FROM audit_log WHERE id > $1 ORDER BY id LIMIT $2';
    while (newest > this.#last) {
      const { rows } = await this.#connection.query(query, [this.#last, LINES_MAX]);
      const lines = rows.map(([id, object, action]) => ({
        id: Number(id),
        object: String(object),
        action: String(action),
      }));
      this.#changes.add(lines);
      this.#last = lines.at(-1)?.id ?? newest;
    }
  }

  async #newest(): Promise<number> {
    const { rows } = await this.#connection.query('SELECT coalesce(max(id), 0) FROM audit_log');
    return Number(rows[0]?.[0] ?? 0);
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#reading;
  }
}
