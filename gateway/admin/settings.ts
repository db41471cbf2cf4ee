/** Settings of the whole gateway. */
import { eq } from 'drizzle-orm';
import * as z from 'zod';
import { asked, database } from '../accounts/database.ts';
import { settings } from '../accounts/schema.ts';
import { readSettings } from '../accounts/settings.ts';
import type { Env } from '../env.ts';
import { change } from './change.ts';
import { type AdminRoute, type Call, route } from './route.ts';

const patchSchema = z.strictObject({
  /** Who is trusted where nobody is named; null: what the environment says. */
  default_trust: z.enum(['admitted', 'marked']).nullable(),
});
const settingsSchema = z.object({ object: z.literal('settings'), default_trust: z.enum(['admitted', 'marked']) });

export const settingsRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/settings',
    summary: 'Settings of the whole gateway.',
    answer: settingsSchema,
    run: ({ env }) => read(env),
  }),
  route({
    role: 'operator',
    method: 'patch',
    path: '/settings',
    summary: 'Change settings of the whole gateway.',
    body: patchSchema,
    answer: settingsSchema,
    run: patch,
  }),
];

async function read(env: Env): Promise<z.infer<typeof settingsSchema>> {
  const { defaultTrust } = await readSettings(env);
  return { object: 'settings', default_trust: defaultTrust };
}

async function patch(call: Call<z.infer<typeof patchSchema>>): Promise<object> {
  const { env, body, now } = call;
  const before = await read(env);
  const db = database(env);
  const name = 'default_trust';
  const [known] = await asked(db.select().from(settings).where(eq(settings.name, name)));
  const set = { value: body.default_trust, updatedAt: now };
  const write =
    body.default_trust === null
      ? db.delete(settings).where(eq(settings.name, name))
      : db
          .insert(settings)
          .values({ name, ...set })
          .onConflictDoUpdate({ target: settings.name, set });
  if (known !== undefined || body.default_trust !== null) {
    await change(call, [write], {
      action: 'settings.update',
      object: name,
      before: before.default_trust,
      after: body.default_trust,
    });
  }
  return read(env);
}
