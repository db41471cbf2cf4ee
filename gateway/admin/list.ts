/** Lists of operators' things: newest first, a page at a time. */
import { type SQL, sql } from 'drizzle-orm';
import type { SQLiteColumn, SQLiteTable } from 'drizzle-orm/sqlite-core';
import * as z from 'zod';

/** The longest id is a provider's of a peer: `name@peer`. */
const AFTER_MAX_CHARS = 128;

export const pageSchema = z.strictObject({
  limit: z.coerce.number().int().min(1).max(100).default(100),
  /** Id of the last entry of the page before. */
  after: z.string().max(AFTER_MAX_CHARS).optional(),
});
export type Page = z.infer<typeof pageSchema>;

/** Rows older than the one with id `after`; none where there is no such row. */
export function older(table: SQLiteTable & { createdAt: SQLiteColumn; id: SQLiteColumn }, page: Page): SQL | undefined {
  if (page.after === undefined) return undefined;
  return sql`(${table.createdAt}, ${table.id}) < (SELECT created_at, id FROM ${table} WHERE id = ${page.after})`;
}

/** `found` holds one entry more than the page if more follow. */
export function list<T>(found: T[], page: Pick<Page, 'limit'>): { object: 'list'; data: T[]; has_more: boolean } {
  return { object: 'list', data: found.slice(0, page.limit), has_more: found.length > page.limit };
}

export function rfc3339(ms: number): string {
  return new Date(ms).toISOString();
}
