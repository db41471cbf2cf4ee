import { and, asc, desc, eq, gt, lt, or } from 'drizzle-orm';
import type { SQLiteColumn } from 'drizzle-orm/sqlite-core';
import { ApiError } from '../../shared/openai/api-errors.ts';

/** OpenAI's list parameters: `after` is the id of the last item of the previous page. */
interface FilePage {
  limit: number;
  after: string | undefined;
  ascending: boolean;
}

/** @throws ApiError 400 for invalid parameters */
export function readFilePage(
  query: (name: string) => string | undefined,
  { limit, most }: { limit: number; most: number },
): FilePage {
  const wanted = query('limit');
  const count = wanted === undefined ? limit : Number(wanted);
  if (!Number.isInteger(count) || count < 1 || count > most)
    throw new ApiError('invalid_request', `'limit' must be an integer from 1 to ${most}.`, { param: 'limit' });
  const order = query('order') ?? 'desc';
  if (order !== 'asc' && order !== 'desc')
    throw new ApiError('invalid_request', "'order' must be 'asc' or 'desc'.", { param: 'order' });
  return { limit: count, after: query('after'), ascending: order === 'asc' };
}

/** Returns the order of rows by creation, and the condition for rows after the last row of the previous page. */
export function pageOrder(
  { createdAt, id }: { createdAt: SQLiteColumn; id: SQLiteColumn },
  ascending: boolean,
  from: { createdAt: number; id: string } | undefined,
) {
  const [order, beyond] = ascending ? [asc, gt] : [desc, lt];
  const behind = from && or(beyond(createdAt, from.createdAt), and(eq(createdAt, from.createdAt), beyond(id, from.id)));
  return { behind, order: [order(createdAt), order(id)] };
}

/** Builds an OpenAI list. `found` has one item more than the page if another page follows. */
export function listEnvelope<T extends { id: string }>(found: readonly T[], limit: number) {
  const data = found.slice(0, limit);
  return {
    object: 'list' as const,
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: found.length > limit,
  };
}
