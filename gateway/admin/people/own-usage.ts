/**
 * What the caller used and may still use, for the page about their own usage. See admin/usage for the usage of others.
 */
import * as z from 'zod';
import type { Account } from '../../accounts/account.ts';
import { queryOrUnavailable } from '../../accounts/database.ts';
import { readGatewaySettings } from '../../accounts/gateway-settings.ts';
import { LIMIT_NAMES } from '../../accounts/limits/limit-meter.ts';
import { countOpenBatches } from '../../batch/open-batch-quota.ts';
import type { Env } from '../../env.ts';
import { ownerOf } from '../../files/file-owner.ts';
import { quotaUse } from '../../files/file-quota.ts';
import { shardsBetween, type UsageRow } from '../../usage/usage-row.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { listSchema } from '../field-schemas.ts';
import { rfc3339 } from '../pagination.ts';
import { recordReadLimit } from './record-read-limit.ts';

const HOUR_MS = 3_600_000;
/** Maximum hours of records that are read. Each hour is an object that must be called. */
const HOURS_MAX = 48;
const REQUESTS_MAX = 200;

const useSchema = z.object({
  limit: z.enum(LIMIT_NAMES),
  allowed: z.number(),
  used: z.number(),
  /** The model whose limit this is; absent: the limit is for all models. */
  model: z.string().optional(),
});

export const limitUseSchema = z.object({
  key: z.array(useSchema),
  user: z.array(useSchema),
  project: z.array(useSchema),
});

const amountSchema = z.object({ allowed: z.number(), used: z.number() });

const requestsQuery = z.strictObject({
  hours: z.coerce.number().int().min(1).max(HOURS_MAX).default(24),
  limit: z.coerce.number().int().min(1).max(REQUESTS_MAX).default(50),
  /** `1`: returns only refused or failed requests. */
  failed: z.enum(['0', '1']).default('0'),
});

const hoursQuery = z.strictObject({ hours: z.coerce.number().int().min(1).max(HOURS_MAX).default(24) });
const hourSchema = z.object({
  hour: z.iso.datetime(),
  requests: z.number(),
  failed: z.number(),
  prompt_tokens: z.number(),
  completion_tokens: z.number(),
});

const requestSchema = z.object({
  at: z.iso.datetime(),
  request_id: z.string(),
  model: z.string(),
  key: z.string(),
  /** Provider of the node; null: no node received the request. */
  provider: z.string().nullable(),
  node: z.string().nullable(),
  /** HTTP status of the response; null: unknown. */
  status: z.number().nullable(),
  /** The gateway's error code; null: the gateway returned no error. */
  error: z.string().nullable(),
  aborted: z.boolean(),
  prompt_tokens: z.number(),
  completion_tokens: z.number(),
  /** Milliseconds until the first token, including waits. Null: there was no token. */
  first_token_ms: z.number().nullable(),
  queue_ms: z.number(),
  total_ms: z.number().nullable(),
  /** Number of equal refusals within a second that this entry stands for. */
  times: z.number(),
});

export const ownUsageRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/me/limits',
    summary: 'Return the current use of the limits of this key, of its user in the project, and of the project.',
    answer: limitUseSchema.extend({ object: z.literal('limits') }),
    run: readLimits,
  }),
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/me/files',
    summary:
      'Return the number of files, their bytes, and the number of open batches of the project of this key. Without a project: of its user; without a user: of the key.',
    answer: z.object({
      object: z.literal('file_limits'),
      count: amountSchema,
      bytes: amountSchema,
      open_batches: amountSchema,
    }),
    run: readFileLimits,
  }),
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/me/hours',
    summary: 'Return the usage of this user, or of a key without a user, in each of the last hours (UTC).',
    query: hoursQuery,
    answer: listSchema(hourSchema),
    run: readHours,
  }),
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/me/requests',
    summary:
      'List the last requests of this user, or of a key without a user, newest first. It never contains a prompt or a response.',
    query: requestsQuery,
    answer: z.object({ object: z.literal('list'), data: z.array(requestSchema), has_more: z.boolean() }),
    run: readRequests,
  }),
];

async function readHours({
  account,
  env,
  query,
  now,
}: AdminCall<unknown, z.infer<typeof hoursQuery>>): Promise<object> {
  const whose = { user: account.userId, key: account.keyId };
  const shards = shardsBetween(now - (query.hours - 1) * HOUR_MS, now);
  const sums = await limited(account, now, () =>
    queryOrUnavailable(Promise.all(shards.map((shard) => env.USAGE.getByName(shard).sums(whose)))),
  );
  const data = sums.map(({ requests, failed, prompt, completion }, n) => {
    const hour = `${shards[n]}:00:00Z`;
    return { hour, requests, failed, prompt_tokens: prompt, completion_tokens: completion };
  });
  return { object: 'list', data, has_more: false };
}

async function readLimits({ account, env }: AdminCall): Promise<object> {
  return { object: 'limits', ...(await readLimitUse(env, account)) };
}

/** @throws ApiError 503 if the limits object cannot be reached */
export async function readLimitUse(
  env: Pick<Env, 'LIMITS'>,
  { limits, keyId }: Pick<Account, 'limits' | 'keyId'>,
): Promise<z.infer<typeof limitUseSchema>> {
  if (limits === undefined) return { key: [], user: [], project: [] };
  const { subject, ...sets } = limits;
  return queryOrUnavailable(env.LIMITS.getByName(subject).uses({ keyId, ...sets }));
}

async function readFileLimits({ account, env, now }: AdminCall): Promise<object> {
  const owner = ownerOf(account);
  const [used, open, settings] = await Promise.all([
    quotaUse(env, owner, now),
    countOpenBatches(env, owner),
    readGatewaySettings(env, now),
  ]);
  const { count, bytes, open_batches } = settings.files;
  return {
    object: 'file_limits',
    count: { allowed: count, used: used.count },
    bytes: { allowed: bytes, used: used.bytes },
    open_batches: { allowed: open_batches, used: open },
  };
}

async function readRequests({
  account,
  env,
  query,
  now,
}: AdminCall<unknown, z.infer<typeof requestsQuery>>): Promise<object> {
  const { limit, hours } = query;
  const whose = { user: account.userId, key: account.keyId, failed: query.failed === '1' };
  const rows: UsageRow[] = [];
  const shards = shardsBetween(now - hours * HOUR_MS, now).reverse();
  await limited(account, now, async () => {
    for (const shard of shards) {
      if (rows.length > limit) break;
      rows.push(...(await queryOrUnavailable(env.USAGE.getByName(shard).recent(whose, limit + 1 - rows.length))));
    }
  });
  return { object: 'list', data: rows.slice(0, limit).map(view), has_more: rows.length > limit };
}

/** Calls `read`. @throws ApiError 429, 503 if too many such reads are running */
async function limited<T>({ userId, keyId }: Account, now: number, read: () => Promise<T>): Promise<T> {
  const end = recordReadLimit.begin(userId ?? keyId, now);
  try {
    return await read();
  } finally {
    end();
  }
}

function view(row: UsageRow): z.infer<typeof requestSchema> {
  const { firstMs, queueMs = 0, session } = row;
  return {
    at: rfc3339(row.at),
    request_id: row.request,
    model: row.model,
    key: row.key,
    provider: row.provider || null,
    node: session || null,
    status: row.status,
    error: row.error ?? null,
    aborted: row.aborted,
    prompt_tokens: row.prompt,
    completion_tokens: row.completion,
    first_token_ms: firstMs === null || firstMs === 0 ? null : firstMs + queueMs,
    queue_ms: queueMs,
    total_ms: row.totalMs,
    times: row.times ?? 1,
  };
}
