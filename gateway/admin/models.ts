import { asc, count, eq, ne } from 'drizzle-orm';
import { type Context, Hono } from 'hono';
import * as z from 'zod';
import { ApiError } from '../../shared/openai/errors.ts';
import { asked, database } from '../accounts/database.ts';
import { modelSettings } from '../accounts/schema.ts';
import { MODEL_SETTINGS_MAX } from '../accounts/settings.ts';
import type { Env } from '../env.ts';
import { parse, readBody } from './body.ts';
import { rfc3339 } from './list.ts';
import { tellRegistry } from './registry.ts';

/** A day: longer silence is nobody's prefill. */
const timeoutSchema = z.number().int().min(1).max(86_400_000).nullable().default(null);
/** A PUT says everything: what it leaves out goes back to the gateway's default. */
const putSchema = z.strictObject({ first_byte_ms: timeoutSchema, stall_ms: timeoutSchema });
const modelSchema = z.string().min(1).max(256);

export const modelRoutes = new Hono<{ Bindings: Env }>();

modelRoutes.get('/', async (c) => {
  const rows = await asked(
    database(c.env).select().from(modelSettings).orderBy(asc(modelSettings.model)).limit(MODEL_SETTINGS_MAX),
  );
  return c.json({ object: 'list', data: rows.map(view), has_more: false });
});

// Model names have slashes, and clients write them raw or encoded: `:id{.+}` takes both.
modelRoutes.get('/:id{.+}', async (c) => {
  const model = modelId(c);
  const [row] = await asked(database(c.env).select().from(modelSettings).where(eq(modelSettings.model, model)));
  if (row !== undefined) return c.json(view(row));
  throw new ApiError('not_found', `Model "${model}" has no settings of its own.`);
});

modelRoutes.put('/:id{.+}', async (c) => {
  const model = modelId(c);
  const body = await readBody(c.req.raw, putSchema);
  const db = database(c.env);
  const [others] = await asked(db.select({ n: count() }).from(modelSettings).where(ne(modelSettings.model, model)));
  if ((others?.n ?? 0) >= MODEL_SETTINGS_MAX) {
    const message = `At most ${MODEL_SETTINGS_MAX} models can have settings of their own. Delete some first.`;
    throw new ApiError('invalid_request', message);
  }
  const set = { firstByteMs: body.first_byte_ms, stallMs: body.stall_ms, updatedAt: Date.now() };
  const row = { model, ...set };
  await asked(db.insert(modelSettings).values(row).onConflictDoUpdate({ target: modelSettings.model, set }));
  await tellRegistry(c.env, (registry) => registry.reloadSettings());
  return c.json(view(row));
});

/** Back to the defaults. Says whether anything was there; repeating tells the registry again. */
modelRoutes.delete('/:id{.+}', async (c) => {
  const model = modelId(c);
  const gone = await asked(database(c.env).delete(modelSettings).where(eq(modelSettings.model, model)).returning());
  await tellRegistry(c.env, (registry) => registry.reloadSettings());
  return c.json({ object: 'model_settings', id: model, deleted: gone.length > 0 });
});

function modelId(c: Context<{ Bindings: Env }>): string {
  return parse(c.req.param('id'), modelSchema);
}

function view(row: typeof modelSettings.$inferSelect) {
  return {
    object: 'model_settings' as const,
    id: row.model,
    first_byte_ms: row.firstByteMs,
    stall_ms: row.stallMs,
    updated_at: rfc3339(row.updatedAt),
  };
}
