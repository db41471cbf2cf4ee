/**
 * Providers, whose nodes may join. `trusted_by_default` marks those that may receive a request if neither its key, its
 * project nor the request names providers.
 */
import { and, count, eq, isNull } from 'drizzle-orm';
import * as z from 'zod';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { joinTokens, providers } from '../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import { PROVIDERS_MAX, readGatewaySettings } from '../accounts/gateway-settings.ts';
import type { Env } from '../env.ts';
import { displayNameSchema } from '../http/common-schemas.ts';
import { notifyRegistry } from '../platform/notify-registry.ts';
import { type AdminCall, type AdminRoute, route } from './admin-route.ts';
import { applyChange, createOnce, notifyIsolates } from './apply-change.ts';
import { isoTime, listSchema, providerIdSchema, readPage } from './field-schemas.ts';
import { pageSchema, rfc3339 } from './pagination.ts';

type Provider = typeof providers.$inferSelect;

/** Maximum concurrent nodes; null: 2,000. */
const maxNodesSchema = z.number().int().min(1).max(1_000_000).nullable();

/**
 * Names of models that the provider's nodes may publish; `org/*` matches all names that begin with `org/`. Null: any.
 * Other models of its nodes are not shown at this gateway.
 */
const modelsSchema = z.array(z.string().min(1).max(256)).max(100).nullable();

const createSchema = z.strictObject({
  /** `name`, or `name@peer` for a provider of a peer institution. */
  id: providerIdSchema,
  name: displayNameSchema.optional(),
  /** Absent: true if the gateway's setting `default_trust` is `admitted`, false if it is `marked`. */
  trusted_by_default: z.boolean().optional(),
  max_nodes: maxNodesSchema.optional(),
  models: modelsSchema.optional(),
});
const patchSchema = z.strictObject({
  name: displayNameSchema.optional(),
  trusted_by_default: z.boolean().optional(),
  max_nodes: maxNodesSchema.optional(),
  models: modelsSchema.optional(),
});

const providerSchema = z.object({
  object: z.literal('provider'),
  id: z.string(),
  name: z.string(),
  trusted_by_default: z.boolean(),
  max_nodes: z.number().nullable(),
  models: z.array(z.string()).nullable(),
  created_at: z.iso.datetime(),
  deleted_at: z.iso.datetime().nullable(),
});

export const providerRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'post',
    path: '/providers',
    summary: 'Create a provider, or restore a deleted provider.',
    body: createSchema,
    answer: providerSchema,
    run: createProvider,
  }),
  route({
    role: 'provider',
    method: 'get',
    path: '/providers',
    summary: 'List providers, including deleted providers. Operators see all providers, other callers only their own.',
    query: pageSchema,
    answer: listSchema(providerSchema),
    run: (call) => readPage(call.env, providers, call.query, own(call), view),
  }),
  route({
    role: 'provider',
    method: 'get',
    path: '/providers/:id',
    summary: 'Return one provider.',
    answer: providerSchema,
    run: async (call) => view(await found(call)),
  }),
  route({
    role: 'operator',
    method: 'patch',
    path: '/providers/:id',
    summary:
      'Change whether a provider is trusted by default, its maximum number of nodes, and the models that its nodes may publish.',
    body: patchSchema,
    answer: providerSchema,
    run: patchProvider,
  }),
  route({
    role: 'operator',
    method: 'delete',
    path: '/providers/:id',
    summary: 'Delete a provider. Its join tokens are revoked, its sessions end, and its name in lists has no effect.',
    answer: providerSchema,
    run: deleteProvider,
  }),
];

async function createProvider(call: AdminCall<z.infer<typeof createSchema>>): Promise<Response> {
  const { id, name = id, max_nodes: maxNodes = null, models = null } = call.body;
  const trustedByDefault = call.body.trusted_by_default ?? (await marksNewProviders(call.env));
  const known = await findProvider(call.env, id);
  const deleted = known?.deletedAt == null ? undefined : known;
  const set = { name, trustedByDefault, maxNodes, models, deletedAt: null };
  const row = { id, createdAt: deleted?.createdAt ?? call.now, ...set };
  const db = database(call.env);
  const what =
    deleted === undefined
      ? {
          action: 'provider.create',
          statements: [db.insert(providers).values(row)],
          check: () => requireProviderLimit(call.env),
        }
      : {
          action: 'provider.restore',
          before: view(deleted),
          statements: [db.update(providers).set(set).where(eq(providers.id, id))],
          status: 200 as const,
        };
  return createOnce(call, {
    ...what,
    object: id,
    after: view(row),
    shown: view(row),
    find: async () => {
      const made = await findProvider(call.env, id);
      return made && view(made);
    },
  });
}

/** True if a new provider is marked as trusted by default. */
export async function marksNewProviders(env: Env): Promise<boolean> {
  return (await readGatewaySettings(env)).defaultTrust === 'admitted';
}

/** Refuses a provider above the maximum, because every isolate stores all of them. @throws ApiError 422 */
export async function requireProviderLimit(env: Pick<Env, 'DB'>): Promise<void> {
  const [all] = await queryOrUnavailable(database(env).select({ n: count() }).from(providers));
  if ((all?.n ?? 0) < PROVIDERS_MAX) return;
  throw new ApiError('unprocessable_content', `This gateway already has ${PROVIDERS_MAX} providers, the maximum.`);
}

async function patchProvider(call: AdminCall<z.infer<typeof patchSchema>>): Promise<object> {
  const row = await found(call);
  const { name, trusted_by_default: trustedByDefault, max_nodes: maxNodes, models } = call.body;
  const set = {
    ...(name !== undefined && { name }),
    ...(trustedByDefault !== undefined && { trustedByDefault }),
    ...(maxNodes !== undefined && { maxNodes }),
    ...(models !== undefined && { models }),
  };
  return Object.keys(set).length === 0 ? view(row) : update(call, row, set, 'provider.update');
}

async function deleteProvider(call: AdminCall): Promise<object> {
  const row = await found(call);
  const after =
    row.deletedAt === null ? await update(call, row, { deletedAt: call.now }, 'provider.delete') : view(row);
  if (row.deletedAt !== null) await notifyIsolates(call.env);
  await endSessions(call.env, row.id);
  return after;
}

/**
 * Evicts the sessions of a deleted provider. The settings alone are not enough: agents also send each other requests,
 * and they learn of evictions but not of settings. Safe to repeat.
 */
async function endSessions(env: Env, provider: string): Promise<void> {
  const query = database(env).select({ id: joinTokens.id }).from(joinTokens).where(eq(joinTokens.provider, provider));
  for (const { id } of await queryOrUnavailable(query))
    await notifyRegistry(env, (registry) => registry.revokeToken(id, true));
}

async function update(
  call: AdminCall<unknown, unknown>,
  row: Provider,
  set: Partial<Provider>,
  action: string,
): Promise<object> {
  const db = database(call.env);
  const after = view({ ...row, ...set });
  const tokens = db
    .update(joinTokens)
    .set({ revokedAt: call.now })
    .where(and(eq(joinTokens.provider, row.id), isNull(joinTokens.revokedAt)));
  const statements = [db.update(providers).set(set).where(eq(providers.id, row.id))];
  await applyChange(call, set.deletedAt == null ? statements : [...statements, tokens], {
    action,
    object: row.id,
    before: view(row),
    after,
  });
  return after;
}

function own({ account }: AdminCall<unknown, unknown>) {
  return account.role === 'operator' ? undefined : eq(providers.id, account.provider ?? '');
}

async function found(call: AdminCall<unknown, unknown>): Promise<Provider> {
  const id = call.param('id');
  const row = await findProvider(call.env, id);
  const mine = call.account.role === 'operator' || call.account.provider === id;
  if (row !== undefined && mine) return row;
  throw new ApiError('not_found', `There is no provider with id "${id.slice(0, 130)}".`);
}

export async function findProvider(env: Pick<Env, 'DB'>, id: string): Promise<Provider | undefined> {
  const [row] = await queryOrUnavailable(database(env).select().from(providers).where(eq(providers.id, id)));
  return row;
}

function view(row: Provider): z.infer<typeof providerSchema> {
  return {
    object: 'provider',
    id: row.id,
    name: row.name,
    trusted_by_default: row.trustedByDefault,
    max_nodes: row.maxNodes,
    models: row.models,
    created_at: rfc3339(row.createdAt),
    deleted_at: isoTime(row.deletedAt),
  };
}
