/** The accounts of a process that shares the data directory of another one: D1's interface over a link. */
import * as z from 'zod';
import type { Env } from '../../../env.ts';
import type { AccountsStore } from '../accounts-store.ts';
import { ReportReads } from '../reports/report-reads.ts';

/** Name of the accounts among the classes of objects that a link calls. */
export const ACCOUNTS = 'ACCOUNTS';
/** Maximum statements of one batch. The largest of the gateway's own has some hundred. */
const STATEMENTS_MAX = 10_000;

const statementsSchema = z
  .array(z.object({ text: z.string(), bindings: z.array(z.unknown()) }))
  .min(1)
  .max(STATEMENTS_MAX);
const methodSchema = z.enum(['all', 'raw', 'batch']);

type Method = z.infer<typeof methodSchema>;
type Given = z.infer<typeof statementsSchema>[number];
/** Calls the accounts of the process that has them. */
type AccountsCaller = (method: Method, statements: readonly Given[]) => Promise<unknown>;
type Row = Record<string, unknown>;

interface Result {
  results: Row[];
}

class Statement {
  readonly #call: AccountsCaller;
  readonly given: Given;

  constructor(call: AccountsCaller, given: Given) {
    this.#call = call;
    this.given = given;
  }

  bind(...bindings: unknown[]): Statement {
    return new Statement(this.#call, { text: this.given.text, bindings });
  }

  async all(): Promise<Result> {
    return (await this.#call('all', [this.given])) as Result;
  }

  run(): Promise<Result> {
    return this.all();
  }

  async first(column?: string): Promise<unknown> {
    const [row] = (await this.all()).results;
    if (row === undefined) return null;
    return column === undefined ? row : (row[column] ?? null);
  }

  async raw(): Promise<unknown[][]> {
    return (await this.#call('raw', [this.given])) as unknown[][];
  }
}

class LinkedD1 {
  readonly #call: AccountsCaller;

  constructor(call: AccountsCaller) {
    this.#call = call;
  }

  prepare(text: string): Statement {
    return new Statement(this.#call, { text, bindings: [] });
  }

  async batch(statements: readonly Statement[]): Promise<Result[]> {
    if (statements.length === 0) return [];
    const given = statements.map((one) => one.given);
    return (await this.#call('batch', given)) as Result[];
  }

  withSession(): LinkedD1 {
    return this;
  }
}

/** The accounts of another process. Reports read its files, on a thread of this process. */
export class LinkedAccounts implements AccountsStore {
  readonly db: Env['DB'];
  readonly reports: Env['DB'];
  readonly #reads: ReportReads;
  /** Set when there are links. */
  call: AccountsCaller = () => Promise.reject(new Error('D1_ERROR: database unavailable: there is no link yet'));

  /** @param file the accounts; @param hours directory of the usage records */
  constructor(file: string, hours: string) {
    this.db = new LinkedD1((method, statements) => this.call(method, statements)) as unknown as Env['DB'];
    this.#reads = new ReportReads(hours);
    this.reports = this.#reads.accounts(file, this.db);
  }

  pools(): [] {
    return [];
  }

  close(): Promise<void> {
    return this.#reads.close();
  }
}

/** Runs statements of another process. @throws Error as D1, or of the schema */
export async function runStatements(db: Env['DB'], method: string, args: readonly unknown[]): Promise<unknown> {
  const how = methodSchema.parse(method);
  const statements = statementsSchema.parse(args[0]).map(({ text, bindings }) => db.prepare(text).bind(...bindings));
  const [first] = statements;
  if (first === undefined) throw new Error('no statement');
  switch (how) {
    case 'all':
      return first.all();
    case 'raw':
      return first.raw();
    case 'batch':
      return db.batch(statements);
  }
}
