/** Pages of the admin API's lists, newest first. */
import { eq, type SQL, sql } from 'drizzle-orm';
import type { SQLiteColumn, SQLiteTable } from 'drizzle-orm/sqlite-core';
import * as z from 'zod';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import type { Env } from '../env.ts';

/** Maximum characters of an id: the longest is that of a peer institution's provider, `name@peer`. */
const AFTER_MAX_CHARS = 128;

export const pageSchema = z.strictObject({
  limit: z.coerce.number().int().min(1).max(100).default(100),
  /** Id of the last entry of the previous page. */
  after: z.string().max(AFTER_MAX_CHARS).optional(),
});
export type PageQuery = z.infer<typeof pageSchema>;

type PagedTable = SQLiteTable & { createdAt: SQLiteColumn; id: SQLiteColumn };

/**
 * Refuses an unknown `after`: an empty page would look like the end of the list, and the caller would miss the rest.
 * @throws ApiError 422 if no row has the id `after`
 */
export async function requireAfter(env: Pick<Env, 'DB'>, table: PagedTable, { after }: PageQuery): Promise<void> {
  if (after === undefined || (await queryOrUnavailable(database(env).$count(table, eq(table.id, after)))) > 0) return;
  throw new ApiError('unprocessable_content', `after: there is no object with the id "${after}".`, { param: 'after' });
}

/** SQL that selects rows older than the row with the id `after`. If no row has this id, it selects nothing. */
export function olderThan(table: PagedTable, page: PageQuery): SQL | undefined {
  if (page.after === undefined) return undefined;
  return sql`(${table.createdAt}, ${table.id}) < (SELECT created_at, id FROM ${table} WHERE id = ${page.after})`;
}

/** Builds a page. `found` has one row more than the page if more pages follow. */
export function listPage<T>(
  found: T[],
  page: Pick<PageQuery, 'limit'>,
): { object: 'list'; data: T[]; has_more: boolean } {
  return { object: 'list', data: found.slice(0, page.limit), has_more: found.length > page.limit };
}

export function rfc3339(ms: number): string {
  return new Date(ms).toISOString();
}
