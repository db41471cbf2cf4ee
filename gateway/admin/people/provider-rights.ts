/**
 * Rights to contribute nodes: a user may create join tokens for one provider and one cluster, for a number of nodes and
 * until a day. Such a user stays a consumer in all else.
 */
import { and, eq, gt, isNull, type SQL, sql } from 'drizzle-orm';
import * as z from 'zod';
import { idSchema } from '../../../shared/lattice/node-record.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { joinTokens, providerRights } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { newId } from '../../accounts/secrets.ts';
import { notifyRegistry } from '../../platform/notify-registry.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { applyChange } from '../apply-change.ts';
import { expiryMs, isoTime, listSchema, readPage } from '../field-schemas.ts';
import { pageSchema, rfc3339 } from '../pagination.ts';
import { findProvider } from '../providers.ts';

type Right = typeof providerRights.$inferSelect;

/** Longest right. People leave, and clusters are replaced. */
const LIFE_MAX_MS = 400 * 86_400_000;
/** Life of a right without an end in the request or the decision. */
const LIFE_DEFAULT_MS = 90 * 86_400_000;
const NODES_DEFAULT = 8;
const NODES_MAX = 1_000;
/** Tokens of one right that are revoked together. */
const TOKENS_MAX = 100;

/** What a user asks for, and what a decision may change. */
export const rightFields = {
  cluster: idSchema.optional(),
  max_nodes: z.number().int().min(1).max(NODES_MAX).optional(),
  expires_at: z.iso.datetime({ offset: true }).optional(),
};
const rightFieldsSchema = z.object(rightFields);
export type RightFields = z.infer<typeof rightFieldsSchema>;

const rightSchema = z.object({
  object: z.literal('provider_right'),
  id: z.string(),
  user_id: z.string(),
  provider: z.string(),
  cluster: z.string(),
  max_nodes: z.number(),
  granted_by: z.string(),
  created_at: z.iso.datetime(),
  expires_at: z.iso.datetime(),
  revoked_at: z.iso.datetime().nullable(),
});

export const providerRightRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/provider-rights',
    summary:
      'List rights to contribute nodes: the caller’s own, those for the caller’s provider, or all for operators.',
    query: pageSchema,
    answer: listSchema(rightSchema),
    run: ({ env, query, account }) => readPage(env, providerRights, query, seen(account), view),
  }),
  route({
    role: 'consumer',
    login: true,
    method: 'delete',
    path: '/provider-rights/:id',
    summary:
      'Revoke a right to contribute nodes. Its join tokens are revoked, and the sessions that joined with them end.',
    answer: rightSchema,
    run: revoke,
  }),
];

type Account = AdminCall['account'];

function seen({ role, provider, userId }: Account): SQL | undefined {
  if (role === 'operator') return undefined;
  if (role === 'provider' && provider !== undefined) return eq(providerRights.provider, provider);
  return eq(providerRights.userId, userId ?? '');
}

/** True if the account may grant and revoke rights of this provider. */
export function mayGrant({ role, provider }: Account, of: string): boolean {
  return role === 'operator' || (role === 'provider' && provider === of);
}

/**
 * Returns the statements that grant a right.
 * @throws ApiError 422 if the provider does not exist, or the cluster or the end cannot be granted
 */
export async function grantRight(
  call: AdminCall<unknown, unknown>,
  userId: string,
  provider: string,
  given: RightFields,
) {
  const { env, now, actor } = call;
  const known = await findProvider(env, provider);
  if (known === undefined || known.deletedAt !== null)
    throw new ApiError('unprocessable_content', `provider: There is no provider "${provider}".`, { param: 'provider' });
  const { cluster, max_nodes: maxNodes = NODES_DEFAULT, expires_at } = given;
  if (cluster === undefined)
    throw new ApiError('unprocessable_content', 'cluster: is required to approve this request.', { param: 'cluster' });
  const expiresAt = expiryMs(expires_at, now) ?? now + LIFE_DEFAULT_MS;
  if (expiresAt > now + LIFE_MAX_MS)
    throw new ApiError('unprocessable_content', 'expires_at: is more than 400 days ahead.', { param: 'expires_at' });
  const row: Right = {
    id: newId('right'),
    userId,
    provider,
    cluster,
    maxNodes,
    grantedBy: actor,
    createdAt: now,
    expiresAt,
    revokedAt: null,
  };
  // In a list, because a promise of a statement would run it.
  return [database(env).insert(providerRights).values(row)];
}

/** The user's right to create tokens of a provider and cluster; undefined: there is none now. */
export async function findRight(
  { env, now, account }: AdminCall<unknown, unknown>,
  provider: string,
  cluster: string | null,
): Promise<Right | undefined> {
  if (account.userId === undefined || cluster === null) return undefined;
  const { userId, provider: of, cluster: at, expiresAt, revokedAt } = providerRights;
  const mine = and(eq(userId, account.userId), eq(of, provider), eq(at, cluster));
  const valid = and(gt(expiresAt, now), isNull(revokedAt));
  const [right] = await queryOrUnavailable(
    database(env).select().from(providerRights).where(and(mine, valid)).orderBy(expiresAt),
  );
  return right;
}

/**
 * SQL of the provider of a new token of this right, or NULL if the right is revoked or its tokens would be for more nodes
 * than it allows. The column refuses NULL, so of two concurrent tokens that are too many together only one is created.
 */
export function providerIfWithin(right: Right, maxNodes: number, now: number): SQL<string> {
  const { maxNodes: nodes, rightId, revokedAt, expiresAt } = joinTokens;
  return sql<string>`CASE WHEN ${right.maxNodes} >= ${maxNodes} + (SELECT coalesce(sum(${nodes}), 0) FROM ${joinTokens}
    WHERE ${rightId} = ${right.id} AND ${revokedAt} IS NULL AND ${expiresAt} > ${now})
    AND EXISTS (SELECT 1 FROM ${providerRights} WHERE ${providerRights.id} = ${right.id} AND ${providerRights.revokedAt} IS NULL)
    THEN ${right.provider} END`;
}

/** Selects the tokens of the user's rights. */
export function tokensOfUser({ env, account }: AdminCall<unknown, unknown>) {
  return database(env)
    .select({ id: providerRights.id })
    .from(providerRights)
    .where(eq(providerRights.userId, account.userId ?? ''));
}

async function revoke(call: AdminCall): Promise<object> {
  const { env, now, account } = call;
  const id = call.param('id');
  const db = database(env);
  const [row] = await queryOrUnavailable(
    db
      .select()
      .from(providerRights)
      .where(and(eq(providerRights.id, id), seen(account))),
  );
  if (row === undefined) throw new ApiError('not_found', `There is no right with id "${id.slice(0, 64)}".`);
  const after = { ...row, revokedAt: row.revokedAt ?? now };
  const own = and(eq(joinTokens.rightId, id), isNull(joinTokens.revokedAt));
  const tokens = await queryOrUnavailable(
    db.select({ id: joinTokens.id }).from(joinTokens).where(eq(joinTokens.rightId, id)).limit(TOKENS_MAX),
  );
  if (row.revokedAt === null)
    await applyChange(
      call,
      [
        db.update(providerRights).set({ revokedAt: now }).where(eq(providerRights.id, id)),
        db.update(joinTokens).set({ revokedAt: now }).where(own),
      ],
      { action: 'provider_right.revoke', object: id, before: view(row), after: view(after) },
    );
  for (const token of tokens)
    await notifyRegistry(env, (registry) => registry.revokeToken(token.id, account.role === 'operator'));
  return view(after);
}

function view(row: Right): z.infer<typeof rightSchema> {
  return {
    object: 'provider_right',
    id: row.id,
    user_id: row.userId,
    provider: row.provider,
    cluster: row.cluster,
    max_nodes: row.maxNodes,
    granted_by: row.grantedBy,
    created_at: rfc3339(row.createdAt),
    expires_at: rfc3339(row.expiresAt),
    revoked_at: isoTime(row.revokedAt),
  };
}
