/**
 * Join tokens, with which agents register nodes. Operators create them for any provider, users with the role provider
 * for their own, and other users within their rights to contribute.
 */
import { and, eq, gt, inArray, isNull, or, sql } from 'drizzle-orm';
import * as z from 'zod';
import { idSchema } from '../../../shared/lattice/node-record.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { joinTokens, providers } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { newId, newSecret, TOKEN_PREFIX } from '../../accounts/secrets.ts';
import type { Env } from '../../env.ts';
import { displayNameSchema } from '../../http/common-schemas.ts';
import { notifyRegistry } from '../../platform/notify-registry.ts';
import { REGISTRY_OBJECT_NAME } from '../../platform/registry-object-name.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { applyChange, createOnce } from '../apply-change.ts';
import { expiryMs, expirySchema, isoTime, listSchema, readPage } from '../field-schemas.ts';
import { type PageQuery, pageSchema, rfc3339 } from '../pagination.ts';
import { findProvider, marksNewProviders, requireProviderLimit } from '../providers.ts';
import { findRight, providerIfWithin, tokensOfUser } from './provider-rights.ts';

type JoinToken = typeof joinTokens.$inferSelect;

/**
 * Default maximum of nodes with one token: larger than most job arrays of a lab, but small enough that a leaked token
 * cannot fill the registry.
 */
const NODES_DEFAULT = 1_000;

const createSchema = z.strictObject({
  /** Absent: the user's own provider, if the user has the role provider. */
  provider: idSchema.optional(),
  /** The only cluster that agents may join with the token; null: any. */
  cluster: idSchema.nullable().default(null),
  name: displayNameSchema.optional(),
  /**
   * Maximum concurrent nodes with this token. Absent: 1,000, or as many as the caller's right allows. Null: the
   * provider's maximum, or as many as the right allows.
   */
  max_nodes: z.number().int().min(1).max(1_000_000).nullable().optional(),
  expires_at: expirySchema.optional(),
});

const joinTokenSchema = z.object({
  object: z.literal('join_token'),
  id: z.string(),
  name: z.string(),
  provider: z.string(),
  cluster: z.string().nullable(),
  max_nodes: z.number().nullable(),
  /** Number of current nodes with this token. */
  nodes: z.number(),
  /** Number of nodes that ever joined with this token. */
  joined: z.number(),
  prefix: z.string(),
  created_at: z.iso.datetime(),
  expires_at: z.iso.datetime().nullable(),
  revoked_at: z.iso.datetime().nullable(),
});

const PROVIDER = { role: 'consumer' } as const;

export const joinTokenRoutes: readonly AdminRoute[] = [
  route({
    ...PROVIDER,
    method: 'post',
    path: '/join-tokens',
    summary: 'Create a join token. It is shown once. If an operator names an unknown provider, it is created too.',
    body: createSchema,
    answer: joinTokenSchema.extend({ token: z.string() }),
    again: joinTokenSchema,
    run: createToken,
  }),
  route({
    ...PROVIDER,
    method: 'get',
    path: '/join-tokens',
    summary: 'List join tokens, newest first.',
    query: pageSchema,
    answer: listSchema(joinTokenSchema),
    run: listTokens,
  }),
  route({
    ...PROVIDER,
    method: 'get',
    path: '/join-tokens/:id',
    summary: 'Return one join token.',
    answer: joinTokenSchema,
    run: async (call) => present(call.env, await found(call)),
  }),
  route({
    ...PROVIDER,
    method: 'delete',
    path: '/join-tokens/:id',
    summary: 'Revoke a join token. Agents can no longer join with it, and the sessions that joined with it end.',
    answer: joinTokenSchema,
    run: revokeToken,
  }),
];

async function createToken(call: AdminCall<z.infer<typeof createSchema>>): Promise<Response> {
  const { body, account, env, now } = call;
  const provider = body.provider ?? account.provider;
  if (provider === undefined)
    throw new ApiError('unprocessable_content', 'provider: is required.', { param: 'provider' });
  const isOwn = account.role === 'operator' || (account.role === 'provider' && provider === account.provider);
  const right = isOwn ? undefined : await requireRight(call, provider);
  const known = await findProvider(env, provider);
  if (known?.deletedAt != null || (known === undefined && account.role !== 'operator')) {
    throw new ApiError('unprocessable_content', `provider: There is no provider "${provider}".`, { param: 'provider' });
  }
  if (known === undefined) await requireProviderLimit(env);
  const { plaintext, hash, prefix } = newSecret(TOKEN_PREFIX);
  const { cluster, name = provider } = body;
  const unset = body.max_nodes === undefined ? NODES_DEFAULT : body.max_nodes;
  const maxNodes = right === undefined ? unset : (body.max_nodes ?? right.maxNodes);
  const until = expiryMs(body.expires_at, now);
  const expiresAt = right === undefined ? until : Math.min(until ?? right.expiresAt, right.expiresAt);
  const rightId = right?.id ?? null;
  const ends = { expiresAt, revokedAt: null };
  const row = {
    id: newId('jt'),
    hash,
    prefix,
    name,
    provider,
    cluster,
    maxNodes,
    rightId,
    joined: 0,
    createdAt: now,
    ...ends,
  };
  const within = right === undefined ? provider : providerIfWithin(right, maxNodes ?? right.maxNodes, now);
  const made = { id: provider, name: provider, trustedByDefault: await marksNewProviders(env), createdAt: now };
  const db = database(env);
  const missing = known === undefined ? [db.insert(providers).values(made).onConflictDoNothing()] : [];
  return createOnce(call, {
    action: 'join_token.create',
    object: row.id,
    after: view(row),
    statements: [db.insert(joinTokens).values({ ...row, provider: within }), ...missing],
    shown: { ...view(row), token: plaintext },
    check: async () => {
      if (right !== undefined) await requirePlaces(env, right, maxNodes ?? right.maxNodes, now);
    },
    find: async (id) => {
      const [token] = await queryOrUnavailable(db.select().from(joinTokens).where(eq(joinTokens.id, id)));
      return token && present(call.env, token);
    },
  });
}

async function revokeToken(call: AdminCall): Promise<object> {
  const row = await found(call);
  if (row.revokedAt !== null) {
    await endSessions(call, row.id);
    return view(row);
  }
  const after = view({ ...row, revokedAt: call.now });
  const update = database(call.env).update(joinTokens).set({ revokedAt: call.now }).where(eq(joinTokens.id, row.id));
  await applyChange(call, [update], { action: 'join_token.revoke', object: row.id, before: view(row), after });
  await endSessions(call, row.id);
  return after;
}

/** Ends the sessions of a revoked token. If the registry cannot be reached, the client repeats the request. */
async function endSessions(call: AdminCall, token: string): Promise<void> {
  await notifyRegistry(call.env, (registry) => registry.revokeToken(token, call.account.role === 'operator'));
}

/** Selects the tokens that the caller may see and revoke. */
function own(call: AdminCall<unknown, unknown>) {
  const { role, provider } = call.account;
  if (role === 'operator') return undefined;
  const byRight = inArray(joinTokens.rightId, tokensOfUser(call));
  return role === 'provider' && provider !== undefined ? or(eq(joinTokens.provider, provider), byRight) : byRight;
}

/** @throws ApiError 403 if the caller has no right to contribute to the provider's cluster */
async function requireRight(call: AdminCall<z.infer<typeof createSchema>>, provider: string) {
  const { cluster } = call.body;
  const right = await findRight(call, provider, cluster);
  if (right !== undefined) return right;
  const where = cluster === null ? 'without a cluster' : `for the cluster "${cluster}"`;
  throw new ApiError(
    'permission_denied',
    `You have no right to create tokens of "${provider}" ${where}. Ask for it: POST /admin/access-requests.`,
  );
}

/** @throws ApiError 422 if tokens of the right would be for more nodes than it allows */
async function requirePlaces(
  env: Env,
  right: NonNullable<Awaited<ReturnType<typeof findRight>>>,
  wanted: number,
  now: number,
) {
  const { maxNodes, rightId, revokedAt, expiresAt } = joinTokens;
  const valid = and(eq(rightId, right.id), isNull(revokedAt), gt(expiresAt, now));
  const [row] = await queryOrUnavailable(
    database(env)
      .select({ used: sql<number>`coalesce(sum(${maxNodes}), 0)` })
      .from(joinTokens)
      .where(valid),
  );
  const left = right.maxNodes - Number(row?.used ?? 0);
  if (wanted <= left) return;
  const message = `max_nodes: Your right allows ${right.maxNodes} nodes, and your tokens leave ${Math.max(0, left)}. Give fewer, or revoke a token.`;
  throw new ApiError('unprocessable_content', message, { param: 'max_nodes' });
}

async function found(call: AdminCall<unknown, unknown>): Promise<JoinToken> {
  const id = call.param('id');
  const where = and(eq(joinTokens.id, id), own(call));
  const [row] = await queryOrUnavailable(database(call.env).select().from(joinTokens).where(where));
  if (row !== undefined) return row;
  throw new ApiError('not_found', `There is no join token with id "${id.slice(0, 64)}".`);
}

async function listTokens(call: AdminCall<undefined, PageQuery>): Promise<object> {
  const page = await readPage(call.env, joinTokens, call.query, own(call), (row) => row);
  const nodes = await places(
    call.env,
    page.data.map(({ id }) => id),
  );
  return { ...page, data: page.data.map((row, at) => view(row, nodes[at])) };
}

async function present(env: Env, row: JoinToken): Promise<z.infer<typeof joinTokenSchema>> {
  const [nodes] = await places(env, [row.id]);
  return view(row, nodes);
}

/** Returns the number of current nodes with each of `tokens`. @throws ApiError 503 if the registry cannot be reached */
async function places(env: Env, tokens: string[]): Promise<number[]> {
  try {
    return await env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).places(tokens);
  } catch (cause) {
    throw new ApiError('server_is_overloaded', 'The registry cannot be reached. Try again shortly.', { cause });
  }
}

function view(row: JoinToken, nodes = 0): z.infer<typeof joinTokenSchema> {
  return {
    object: 'join_token',
    id: row.id,
    name: row.name,
    provider: row.provider,
    cluster: row.cluster,
    max_nodes: row.maxNodes,
    nodes,
    joined: row.joined,
    prefix: row.prefix,
    created_at: rfc3339(row.createdAt),
    expires_at: isoTime(row.expiresAt),
    revoked_at: isoTime(row.revokedAt),
  };
}
