import { desc, eq, sql } from 'drizzle-orm';
import { Hono } from 'hono';
import * as z from 'zod';
import { idSchema } from '../../shared/lattice/node.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { asked, database } from '../accounts/database.ts';
import { joinTokens } from '../accounts/schema.ts';
import { newId, newSecret, TOKEN_PREFIX } from '../accounts/secrets.ts';
import type { Env } from '../env.ts';
import { readBody, readQuery } from './body.ts';
import { list, nameSchema, older, pageSchema, rfc3339 } from './list.ts';

const createSchema = z.strictObject({
  provider: idSchema,
  /** Absent: the agent may name any cluster of this provider. */
  cluster: idSchema.nullable().default(null),
  name: nameSchema.optional(),
});

export const joinTokenRoutes = new Hono<{ Bindings: Env }>();

joinTokenRoutes.post('/', async (c) => {
  const { provider, cluster, name = provider } = await readBody(c.req.raw, createSchema);
  const { plaintext, hash, prefix } = newSecret(TOKEN_PREFIX);
  const row = { id: newId('jt'), hash, prefix, name, provider, cluster, createdAt: Date.now(), revokedAt: null };
  await asked(database(c.env).insert(joinTokens).values(row));
  return c.json({ ...view(row), token: plaintext }, 201, { 'cache-control': 'no-store' });
});

joinTokenRoutes.get('/', async (c) => {
  const page = readQuery(c.req.raw, pageSchema);
  const rows = await asked(
    database(c.env)
      .select()
      .from(joinTokens)
      .where(older(joinTokens, page))
      .orderBy(desc(joinTokens.createdAt), desc(joinTokens.id))
      .limit(page.limit + 1),
  );
  return c.json(list(rows.map(view), page));
});

joinTokenRoutes.get('/:id', async (c) => {
  const [row] = await asked(
    database(c.env)
      .select()
      .from(joinTokens)
      .where(eq(joinTokens.id, c.req.param('id'))),
  );
  if (row === undefined) throw notFound(c.req.param('id'));
  return c.json(view(row));
});

/** Revokes: nobody can join with it any more. Sessions that joined before stay until they end. */
joinTokenRoutes.delete('/:id', async (c) => {
  const [row] = await asked(
    database(c.env)
      .update(joinTokens)
      .set({ revokedAt: sql`coalesce(${joinTokens.revokedAt}, ${Date.now()})` })
      .where(eq(joinTokens.id, c.req.param('id')))
      .returning(),
  );
  if (row === undefined) throw notFound(c.req.param('id'));
  return c.json(view(row));
});

function view(row: typeof joinTokens.$inferSelect) {
  return {
    object: 'join_token' as const,
    id: row.id,
    name: row.name,
    provider: row.provider,
    cluster: row.cluster,
    prefix: row.prefix,
    created_at: rfc3339(row.createdAt),
    revoked_at: row.revokedAt === null ? null : rfc3339(row.revokedAt),
  };
}

function notFound(id: string): ApiError {
  return new ApiError('not_found', `There is no join token with id "${id.slice(0, 64)}".`);
}
