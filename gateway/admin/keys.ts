import { desc, eq, sql } from 'drizzle-orm';
import { Hono } from 'hono';
import * as z from 'zod';
import { ApiError } from '../../shared/openai/errors.ts';
import { asked, database } from '../accounts/database.ts';
import { apiKeys, ROLES } from '../accounts/schema.ts';
import { KEY_PREFIX, newId, newSecret } from '../accounts/secrets.ts';
import type { Env } from '../env.ts';
import { readBody, readQuery } from './body.ts';
import { list, nameSchema, older, pageSchema, rfc3339 } from './list.ts';
import { tellRegistry } from './registry.ts';

const createSchema = z.strictObject({ name: nameSchema, role: z.enum(ROLES).default('consumer') });

export const keyRoutes = new Hono<{ Bindings: Env }>();

keyRoutes.post('/', async (c) => {
  const { name, role } = await readBody(c.req.raw, createSchema);
  const { plaintext, hash, prefix } = newSecret(KEY_PREFIX);
  const row = { id: newId('key'), hash, prefix, name, role, createdAt: Date.now(), revokedAt: null };
  await asked(database(c.env).insert(apiKeys).values(row));
  return c.json({ ...view(row), key: plaintext }, 201, { 'cache-control': 'no-store' });
});

keyRoutes.get('/', async (c) => {
  const page = readQuery(c.req.raw, pageSchema);
  const rows = await asked(
    database(c.env)
      .select()
      .from(apiKeys)
      .where(older(apiKeys, page))
      .orderBy(desc(apiKeys.createdAt), desc(apiKeys.id))
      .limit(page.limit + 1),
  );
  return c.json(list(rows.map(view), page));
});

keyRoutes.get('/:id', async (c) => {
  const [row] = await asked(
    database(c.env)
      .select()
      .from(apiKeys)
      .where(eq(apiKeys.id, c.req.param('id'))),
  );
  if (row === undefined) throw notFound(c.req.param('id'));
  return c.json(view(row));
});

/** Revokes. D1 first: whatever fails afterwards, nobody who asks D1 is told that the key is good. */
keyRoutes.delete('/:id', async (c) => {
  const [row] = await asked(
    database(c.env)
      .update(apiKeys)
      .set({ revokedAt: sql`coalesce(${apiKeys.revokedAt}, ${Date.now()})` })
      .where(eq(apiKeys.id, c.req.param('id')))
      .returning(),
  );
  if (row === undefined) throw notFound(c.req.param('id'));
  await tellRegistry(c.env, (registry) => registry.revokeKey(row.hash));
  return c.json(view(row));
});

/** What may be shown of a key again and again: never its hash. */
function view(row: typeof apiKeys.$inferSelect) {
  return {
    object: 'key' as const,
    id: row.id,
    name: row.name,
    role: row.role,
    prefix: row.prefix,
    created_at: rfc3339(row.createdAt),
    revoked_at: row.revokedAt === null ? null : rfc3339(row.revokedAt),
  };
}

function notFound(id: string): ApiError {
  return new ApiError('not_found', `There is no key with id "${id.slice(0, 64)}".`);
}
