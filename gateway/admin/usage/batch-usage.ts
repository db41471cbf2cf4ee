/** Usage of each batch. The usage totals contain the lines of batches as well, but not which batch they belong to. */
import { and, eq, gte, inArray, lt, type SQL, sql } from 'drizzle-orm';
import * as z from 'zod';
import { apiKeys } from '../../accounts/account-tables.ts';
import { queryOrUnavailable, reportDatabase } from '../../accounts/database.ts';
import { ownerOf } from '../../files/file-owner.ts';
import { batches } from '../../files/file-tables.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { listSchema } from '../field-schemas.ts';
import { listPage, olderThan, pageSchema, requireAfter } from '../pagination.ts';

const DAY_MS = 86_400_000;
const daySchema = z.iso.date();
const filterText = z.string().max(256).optional();
const querySchema = pageSchema.extend({
  /** First and last day on which the batches were created, UTC, both included. Default: the last 30 days. */
  from: daySchema.optional(),
  to: daySchema.optional(),
  project: filterText,
  user: filterText,
  key: filterText,
  model: filterText,
});

const usageSchema = z.object({
  object: z.literal('batch_usage'),
  id: z.string(),
  /** Day on which the batch was created, UTC. */
  day: z.iso.date(),
  status: z.string(),
  project: z.string(),
  key: z.string(),
  model: z.string(),
  /** Number of lines with a result. */
  requests: z.number(),
  failed: z.number(),
  prompt_tokens: z.number(),
  completion_tokens: z.number(),
  cached_tokens: z.number(),
  reasoning_tokens: z.number(),
});

/** The members of the stored batch object that are read. */
const summarySchema = z.looseObject({
  status: z.string(),
  model: z.string().nullable(),
  request_counts: z.object({ completed: z.number(), failed: z.number() }),
  usage: z.object({
    input_tokens: z.number(),
    output_tokens: z.number(),
    input_tokens_details: z.object({ cached_tokens: z.number() }),
    output_tokens_details: z.object({ reasoning_tokens: z.number() }),
  }),
});

export const batchUsageRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/usage/batches',
    summary:
      'List the usage of each batch, newest first, some seconds late. Operators see all batches, other users only their own.',
    query: querySchema,
    answer: listSchema(usageSchema),
    run: readBatches,
  }),
];

async function readBatches(call: AdminCall<unknown, z.infer<typeof querySchema>>): Promise<object> {
  const { env, query, now } = call;
  const { project, key, user, model } = query;
  const to = Date.parse(query.to ?? new Date(now).toISOString().slice(0, 10));
  const from = query.from === undefined ? to - 29 * DAY_MS : Date.parse(query.from);
  const where = and(
    gte(batches.createdAt, from),
    lt(batches.createdAt, to + DAY_MS),
    own(call),
    project === undefined
      ? undefined
      : eq(batches.owner, ownerOf({ projectId: project, userId: undefined, keyId: '' })),
    key === undefined ? undefined : eq(batches.createdBy, key),
    user === undefined ? undefined : ofUser(env, user),
    model === undefined ? undefined : eq(sql`${batches.summary} ->> 'model'`, model),
    olderThan(batches, query),
  );
  const found = reportDatabase(env)
    .select()
    .from(batches)
    .where(where)
    .orderBy(sql`${batches.createdAt} DESC, ${batches.id} DESC`)
    .limit(query.limit + 1);
  const rows = await queryOrUnavailable(found);
  if (rows.length === 0) await requireAfter(env, batches, query);
  return listPage(rows.map(shown), query);
}

function shown({ id, owner, createdBy, createdAt, summary }: typeof batches.$inferSelect): z.infer<typeof usageSchema> {
  const { status, model, request_counts: counts, usage } = summarySchema.parse(summary);
  return {
    object: 'batch_usage',
    id,
    day: new Date(createdAt).toISOString().slice(0, 10),
    status,
    project: owner.startsWith('project:') ? owner.slice('project:'.length) : '',
    key: createdBy,
    model: model ?? '',
    requests: counts.completed + counts.failed,
    failed: counts.failed,
    prompt_tokens: usage.input_tokens,
    completion_tokens: usage.output_tokens,
    cached_tokens: usage.input_tokens_details.cached_tokens,
    reasoning_tokens: usage.output_tokens_details.reasoning_tokens,
  };
}

/**
 * Selects the batches that the caller may see. Callers that are not operators see the batches that they created, in any
 * project.
 */
function own({ account: { role, userId, keyId }, env }: AdminCall): SQL | undefined {
  if (role === 'operator') return undefined;
  return userId === undefined ? eq(batches.createdBy, keyId) : ofUser(env, userId);
}

/** Selects a user's batches. A batch that was created in a login has the user's id in place of a key. */
function ofUser(env: AdminCall['env'], user: string): SQL {
  const keys = reportDatabase(env).select({ id: apiKeys.id }).from(apiKeys).where(eq(apiKeys.userId, user));
  return sql`(${eq(batches.createdBy, user)} OR ${inArray(batches.createdBy, keys)})`;
}
