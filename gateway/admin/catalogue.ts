/** The catalogue as operators keep it: who answers for a model, who may use it, whether it is always there, and when it ends. */
import { asc, count, eq, ne, sql } from 'drizzle-orm';
import * as z from 'zod';
import { ApiError } from '../../shared/openai/errors.ts';
import { type Account, mayUseModel } from '../accounts/account.ts';
import { hasAccess } from '../accounts/catalogue.ts';
import { asked, database } from '../accounts/database.ts';
import { catalogue } from '../accounts/schema.ts';
import { CATALOGUE_MAX, readSettings } from '../accounts/settings.ts';
import { parse } from '../json-body.ts';
import { change } from './change.ts';
import { listOf, time } from './fields.ts';
import { rfc3339 } from './list.ts';
import { requireUser } from './references.ts';
import { type AdminRoute, type Call, route } from './route.ts';

type Row = typeof catalogue.$inferSelect;

/** Every isolate holds them all. */
const ACCESS_MAX = 100;

const ACCESS = /^(?:(?:key|user|proj)_[\w-]{1,60}|group:[a-z0-9][a-z0-9._-]{0,59})$/;

const modelSchema = z.string().min(1).max(256);
const date = z.iso.datetime({ offset: true }).nullable();

const patchSchema = z
  .strictObject({
    /** Id of the user who answers for it. */
    owner_id: z.string().max(64).nullable(),
    /** Ids of the keys, users and projects, and `group:NAME`s, that see and use it; null: everybody, []: operators alone. */
    access: z
      .array(z.string().regex(ACCESS, 'must be the id of a key, a user or a project, or group: and the name of one'))
      .max(ACCESS_MAX)
      .nullable(),
    /** Requests wait for it where no node serves it: its owner keeps it running. */
    always_on: z.boolean(),
    /** When new work should no longer begin with it: answers say so. */
    deprecated_at: date,
    /** From then on its requests get 404. */
    sunset_at: date,
    /** The model that takes its place. */
    successor: modelSchema.nullable(),
  })
  .partial();

const entrySchema = z.object({
  object: z.literal('catalogue_entry'),
  id: z.string(),
  owner_id: z.string().nullable(),
  /** Of others than operators: null. */
  access: z.array(z.string()).nullable(),
  /** Not everybody has access. */
  restricted: z.boolean(),
  always_on: z.boolean(),
  deprecated_at: z.iso.datetime().nullable(),
  sunset_at: z.iso.datetime().nullable(),
  successor: z.string().nullable(),
  updated_at: z.iso.datetime(),
});

// Model names have slashes, and clients write them raw or encoded: `:id{.+}` takes both.
const ONE = '/catalogue/:id{.+}';

export const catalogueRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/catalogue',
    summary:
      'What the catalogue says of the models that the caller may use: owner, whether it is always there, and when it ends.',
    answer: listOf(entrySchema),
    run: listEntries,
  }),
  route({
    role: 'operator',
    method: 'patch',
    path: ONE,
    params: { id: modelSchema },
    summary: 'Say something of a model; what is left out stays. Acts everywhere within 5 s.',
    body: patchSchema,
    answer: entrySchema,
    run: patchEntry,
  }),
  route({
    role: 'operator',
    method: 'delete',
    path: ONE,
    params: { id: modelSchema },
    summary: 'Nothing is said of a model any more: everybody may use it, and it has no end. Says whether anything was.',
    answer: z.object({ object: z.literal('catalogue_entry'), id: z.string(), deleted: z.boolean() }),
    run: deleteEntry,
  }),
];

async function listEntries({ env, account }: Call): Promise<object> {
  const query = database(env).select().from(catalogue).orderBy(asc(catalogue.model)).limit(CATALOGUE_MAX);
  const [rows, settings] = await Promise.all([asked(query), readSettings(env)]);
  const mine = rows.filter(({ model }) => mayUseModel(account, model) && hasAccess(settings, account, model));
  return { object: 'list', data: mine.map((row) => view(row, account)), has_more: false };
}

async function patchEntry(call: Call<z.infer<typeof patchSchema>>): Promise<object> {
  const { body, env, now, account } = call;
  const model = parse(call.param('id'), modelSchema);
  const db = database(env);
  const [others] = await asked(db.select({ n: count() }).from(catalogue).where(ne(catalogue.model, model)));
  if ((others?.n ?? 0) >= CATALOGUE_MAX)
    throw new ApiError(
      'unprocessable_content',
      `The catalogue has ${CATALOGUE_MAX} models already. Delete some first.`,
    );
  if (body.owner_id != null) await requireUser(env, body.owner_id);
  const before = await find(env, model);
  const { owner_id: ownerId, access, always_on: alwaysOn, deprecated_at, sunset_at, successor } = body;
  const set = {
    ...(ownerId !== undefined && { ownerId }),
    ...(access !== undefined && { access }),
    ...(alwaysOn !== undefined && { alwaysOn }),
    ...(deprecated_at !== undefined && { deprecatedAt: msOf(deprecated_at) }),
    ...(sunset_at !== undefined && { sunsetAt: msOf(sunset_at) }),
    ...(successor !== undefined && { successor }),
    updatedAt: now,
  };
  const row: Row = { ...NOTHING, ...before, model, ...set };
  requireOrder(row);
  const write = db.insert(catalogue).values(row).onConflictDoUpdate({ target: catalogue.model, set });
  const was = before && view(before, account);
  await change(call, [write], { action: 'catalogue.update', object: model, before: was, after: view(row, account) });
  return view(row, account);
}

const NOTHING = {
  ownerId: null,
  access: null,
  alwaysOn: false,
  deprecatedAt: null,
  sunsetAt: null,
  successor: null,
};

/** RFC 9745 §4: the sunset is never before the deprecation. @throws ApiError 400 */
function requireOrder({ model, deprecatedAt, sunsetAt, successor }: Row): void {
  if (deprecatedAt !== null && sunsetAt !== null && sunsetAt < deprecatedAt)
    throw new ApiError('unprocessable_content', 'sunset_at: is before deprecated_at.', { param: 'sunset_at' });
  if (successor === model)
    throw new ApiError('unprocessable_content', 'successor: a model does not follow itself.', { param: 'successor' });
}

async function deleteEntry(call: Call): Promise<object> {
  const model = parse(call.param('id'), modelSchema);
  const before = await find(call.env, model);
  if (before !== undefined) {
    const write = database(call.env).delete(catalogue).where(eq(catalogue.model, model));
    await change(call, [write], { action: 'catalogue.delete', object: model, before: view(before, call.account) });
  }
  return { object: 'catalogue_entry', id: model, deleted: before !== undefined };
}

/** The key that takes the place of `old` is let in where that was. What `old` took the place of is let in no more: lists do not grow. */
export function listSuccessor(env: Call['env'], old: { id: string; rotatedFrom: string | null }, next: string) {
  const { access } = catalogue;
  const more = sql`json_insert(${access}, '$[#]', ${next})`;
  const former = old.rotatedFrom ?? '';
  const list = sql<string[]>`(SELECT json_group_array(value) FROM json_each(${more}) WHERE value <> ${former})`;
  const listed = sql`EXISTS (SELECT 1 FROM json_each(${access}) WHERE value = ${old.id})`;
  return database(env).update(catalogue).set({ access: list }).where(listed);
}

async function find(env: Call['env'], model: string): Promise<Row | undefined> {
  const [row] = await asked(database(env).select().from(catalogue).where(eq(catalogue.model, model)));
  return row;
}

function msOf(text: string | null): number | null {
  return text === null ? null : Date.parse(text);
}

function view(row: Row, { role }: Pick<Account, 'role'>): z.infer<typeof entrySchema> {
  return {
    object: 'catalogue_entry',
    id: row.model,
    owner_id: row.ownerId,
    access: role === 'operator' ? row.access : null,
    restricted: row.access !== null,
    always_on: row.alwaysOn,
    deprecated_at: time(row.deprecatedAt),
    sunset_at: time(row.sunsetAt),
    successor: row.successor,
    updated_at: rfc3339(row.updatedAt),
  };
}
