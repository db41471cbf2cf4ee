/** Factory tokens: an autoscaler needs one to report its state to this gateway and to read the demand. */
import { eq } from 'drizzle-orm';
import * as z from 'zod';
import { idSchema } from '../../shared/lattice/node-record.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { factoryTokens } from '../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import { FACTORY_PREFIX, newId, newSecret } from '../accounts/secrets.ts';
import { FACTORY_OBJECT_NAME } from '../factory/factory-object-name.ts';
import { displayNameSchema } from '../http/common-schemas.ts';
import { type AdminCall, type AdminRoute, route } from './admin-route.ts';
import { applyChange, createOnce } from './apply-change.ts';
import { expiryMs, expirySchema, isoTime, listSchema, readPage } from './field-schemas.ts';
import { pageSchema, rfc3339 } from './pagination.ts';
import { requireProvider } from './require-existing.ts';

type FactoryToken = typeof factoryTokens.$inferSelect;

const createSchema = z.strictObject({
  /**
   * The provider of the nodes that the autoscaler's jobs start. The autoscaler may drain only nodes of this provider,
   * and starts models only for requests that trust it.
   */
  provider: idSchema,
  name: displayNameSchema.optional(),
  expires_at: expirySchema.optional(),
});

const factoryTokenSchema = z.object({
  object: z.literal('factory_token'),
  id: z.string(),
  name: z.string(),
  provider: z.string(),
  prefix: z.string(),
  created_at: z.iso.datetime(),
  expires_at: z.iso.datetime().nullable(),
  revoked_at: z.iso.datetime().nullable(),
});

const OPERATOR = { role: 'operator' } as const;

export const factoryTokenRoutes: readonly AdminRoute[] = [
  route({
    ...OPERATOR,
    method: 'post',
    path: '/factory-tokens',
    summary: 'Create a factory token. It is shown once, and is valid only for POST /factory/exchange.',
    body: createSchema,
    answer: factoryTokenSchema.extend({ token: z.string() }),
    again: factoryTokenSchema,
    run: createToken,
  }),
  route({
    ...OPERATOR,
    method: 'get',
    path: '/factory-tokens',
    summary: 'List factory tokens, newest first.',
    query: pageSchema,
    answer: listSchema(factoryTokenSchema),
    run: (call) => readPage(call.env, factoryTokens, call.query, undefined, view),
  }),
  route({
    ...OPERATOR,
    method: 'get',
    path: '/factory-tokens/:id',
    summary: 'Return one factory token.',
    answer: factoryTokenSchema,
    run: async (call) => view(await found(call)),
  }),
  route({
    ...OPERATOR,
    method: 'delete',
    path: '/factory-tokens/:id',
    summary: 'Revoke a factory token. Its autoscaler gets no more demand, and its cold models are removed immediately.',
    answer: factoryTokenSchema,
    run: revokeToken,
  }),
];

async function createToken(call: AdminCall<z.infer<typeof createSchema>>): Promise<Response> {
  const { body, env, now } = call;
  const { provider, name = provider } = body;
  await requireProvider(env, provider);
  const { plaintext, hash, prefix } = newSecret(FACTORY_PREFIX);
  const ends = { expiresAt: expiryMs(body.expires_at, now), revokedAt: null };
  const row: FactoryToken = { id: newId('ft'), hash, prefix, name, provider, createdAt: now, ...ends };
  return createOnce(call, {
    action: 'factory_token.create',
    object: row.id,
    after: view(row),
    statements: [database(env).insert(factoryTokens).values(row)],
    shown: { ...view(row), token: plaintext },
    find: async (id) => {
      const [token] = await queryOrUnavailable(
        database(env).select().from(factoryTokens).where(eq(factoryTokens.id, id)),
      );
      return token && view(token);
    },
  });
}

async function revokeToken(call: AdminCall): Promise<object> {
  const row = await found(call);
  const after = view({ ...row, revokedAt: row.revokedAt ?? call.now });
  if (row.revokedAt === null) {
    const update = database(call.env)
      .update(factoryTokens)
      .set({ revokedAt: call.now })
      .where(eq(factoryTokens.id, row.id));
    await applyChange(call, [update], { action: 'factory_token.revoke', object: row.id, before: view(row), after });
  }
  await forget(call, row.id);
  return after;
}

/**
 * Makes the factory object forget a revoked token's reports. If the object cannot be reached, the client repeats the
 * request.
 */
async function forget({ env }: AdminCall, token: string): Promise<void> {
  try {
    await env.FACTORY.getByName(FACTORY_OBJECT_NAME).forget(token);
  } catch (cause) {
    const message =
      'The token is revoked, but the models of its factory may be listed for up to 90 s. It is safe to repeat this request.';
    throw new ApiError('server_is_overloaded', message, { cause });
  }
}

async function found(call: AdminCall): Promise<FactoryToken> {
  const id = call.param('id');
  const [row] = await queryOrUnavailable(
    database(call.env).select().from(factoryTokens).where(eq(factoryTokens.id, id)),
  );
  if (row !== undefined) return row;
  throw new ApiError('not_found', `There is no factory token with id "${id.slice(0, 64)}".`);
}

function view(row: FactoryToken): z.infer<typeof factoryTokenSchema> {
  return {
    object: 'factory_token',
    id: row.id,
    name: row.name,
    provider: row.provider,
    prefix: row.prefix,
    created_at: rfc3339(row.createdAt),
    expires_at: isoTime(row.expiresAt),
    revoked_at: isoTime(row.revokedAt),
  };
}
