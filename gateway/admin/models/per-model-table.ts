/** Lists, finds, writes and deletes rows of a table with one row per model. */
import { asc, count, eq, ne } from 'drizzle-orm';
import type { SQLiteColumn, SQLiteTable } from 'drizzle-orm/sqlite-core';
import * as z from 'zod';
import type { Account } from '../../accounts/account.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import type { Env } from '../../env.ts';
import type { AdminCall } from '../admin-route.ts';
import { applyChange, notifyIsolates } from '../apply-change.ts';

export const modelRowSchema = z.string().min(1).max(256);

type AnyCall = AdminCall<unknown, unknown>;
type ModelTable = SQLiteTable & { model: SQLiteColumn };
type Row<T extends ModelTable> = T['$inferSelect'];

interface ModelRowChange<T extends ModelTable> {
  row: Row<T>;
  set: Record<string, unknown>;
  before: Row<T> | undefined;
}

export class PerModelTable<T extends ModelTable> {
  readonly #table: T;
  readonly #kind: string;
  readonly #max: number;
  readonly #view: (row: Row<T>, account: Account) => object;

  /**
   * @param kind prefix of the audit log's actions, `KIND.update` and `KIND.delete`
   * @param max maximum number of rows
   * @param view converts a row for this caller
   */
  constructor(table: T, kind: string, max: number, view: (row: Row<T>, account: Account) => object) {
    this.#table = table;
    this.#kind = kind;
    this.#max = max;
    this.#view = view;
  }

  /** Returns the rows of the models for which `keep` returns true, sorted by name. */
  async list({ env, account }: AnyCall, keep: (model: string) => boolean = () => true): Promise<object> {
    const { model } = this.#table;
    const query = database(env)
      .select()
      .from(this.#table as SQLiteTable)
      .orderBy(asc(model));
    const rows = await queryOrUnavailable(query.limit(this.#max));
    const data = rows.filter((row) => keep(row.model)).map((row) => this.#view(row, account));
    return { object: 'list', data, has_more: false };
  }

  async find({ env }: { env: Pick<Env, 'DB'> }, model: string): Promise<Row<T> | undefined> {
    const query = database(env)
      .select()
      .from(this.#table as SQLiteTable)
      .where(eq(this.#table.model, model));
    const [row] = await queryOrUnavailable(query);
    return row;
  }

  /** True if the maximum number of rows is in use by other models. */
  async isFull({ env }: { env: Pick<Env, 'DB'> }, model: string): Promise<boolean> {
    const others = database(env)
      .select({ n: count() })
      .from(this.#table as SQLiteTable);
    const [row] = await queryOrUnavailable(others.where(ne(this.#table.model, model)));
    return (row?.n ?? 0) >= this.#max;
  }

  /** Stores `row`, or updates an existing row with the fields of `set`. @returns the row as the caller sees it */
  async write(call: AnyCall, model: string, { row, set, before }: ModelRowChange<T>): Promise<object> {
    const insert = database(call.env)
      .insert(this.#table as SQLiteTable)
      .values(row);
    const after = this.#view(row, call.account);
    const what = { action: `${this.#kind}.update`, object: model, after };
    const was = before && this.#view(before, call.account);
    await applyChange(call, [insert.onConflictDoUpdate({ target: this.#table.model, set })], { ...what, before: was });
    return after;
  }

  /**
   * Deletes a model's row. Returns false if there is no row. It then still notifies the registry, because an earlier
   * call may have deleted the row and failed to notify it.
   */
  async delete(call: AnyCall, model: string): Promise<boolean> {
    const before = await this.find(call, model);
    if (before === undefined) {
      await notifyIsolates(call.env);
      return false;
    }
    const write = database(call.env).delete(this.#table).where(eq(this.#table.model, model));
    const what = { action: `${this.#kind}.delete`, object: model, before: this.#view(before, call.account) };
    await applyChange(call, [write], what);
    return true;
  }
}
