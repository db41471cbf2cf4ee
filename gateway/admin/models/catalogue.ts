/**
 * The catalog as operators edit it: a model's owner, its access list, whether a node should always serve it, and its
 * end.
 */
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { type Account, mayUseModel } from '../../accounts/account.ts';
import { database } from '../../accounts/database.ts';
import { CATALOGUE_MAX, readGatewaySettings } from '../../accounts/gateway-settings.ts';
import { hasAccess } from '../../accounts/model-access.ts';
import { catalogue } from '../../accounts/model-tables.ts';
import { sqlFragments } from '../../accounts/sql-fragments.ts';
import { modelParam } from '../../http/route-description.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { isoTime, listSchema } from '../field-schemas.ts';
import { rfc3339 } from '../pagination.ts';
import { requireUser } from '../require-existing.ts';
import { modelRowSchema, PerModelTable } from './per-model-table.ts';

type Row = typeof catalogue.$inferSelect;

/** Maximum entries of an access list. It is small, because every isolate stores all lists. */
const ACCESS_MAX = 100;

const ACCESS = /^(?:(?:key|user|proj)_[\w-]{1,60}|group:[a-z0-9][a-z0-9._-]{0,59})$/;

const date = z.iso.datetime({ offset: true }).nullable();

const patchSchema = z
  .strictObject({
    /** Id of the user that is responsible for the model. */
    owner_id: z.string().max(64).nullable(),
    /**
     * Ids of keys, users and projects, and `group:NAME`s, that may see and use the model; null: everyone, []: only
     * operators.
     */
    access: z
      .array(z.string().regex(ACCESS, 'must be the id of a key, a user or a project, or group:NAME'))
      .max(ACCESS_MAX)
      .nullable(),
    /**
     * True if a node should always serve the model: autoscalers keep a replica, an alert is raised if no node serves
     * it, and requests then wait for it.
     */
    always_on: z.boolean(),
    /** From this time on, new work should not use the model, and responses say so. */
    deprecated_at: date,
    /** From this time on, requests for the model get 404. */
    sunset_at: date,
    /** Name of the model that replaces this model. */
    successor: modelRowSchema.nullable(),
  })
  .partial();

const entrySchema = z.object({
  object: z.literal('catalogue_entry'),
  id: z.string(),
  owner_id: z.string().nullable(),
  /** The access list; null if the caller is not an operator. */
  access: z.array(z.string()).nullable(),
  /** True if the model has an access list. */
  restricted: z.boolean(),
  always_on: z.boolean(),
  deprecated_at: z.iso.datetime().nullable(),
  sunset_at: z.iso.datetime().nullable(),
  successor: z.string().nullable(),
  updated_at: z.iso.datetime(),
});

const rows = new PerModelTable(catalogue, 'catalogue', CATALOGUE_MAX, view);

const ONE = `/catalogue/${modelParam('id')}`;

export const catalogueRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/catalogue',
    summary:
      'List the catalogue entries of models that the caller may use: owner, whether the model is always on, and its end.',
    answer: listSchema(entrySchema),
    run: listEntries,
  }),
  route({
    role: 'operator',
    method: 'patch',
    path: ONE,
    params: { id: modelRowSchema },
    summary:
      'Change the catalogue entry of a model. Absent members stay unchanged. Takes effect everywhere within 5 s.',
    body: patchSchema,
    answer: entrySchema,
    run: patchEntry,
  }),
  route({
    role: 'operator',
    method: 'delete',
    path: ONE,
    params: { id: modelRowSchema },
    summary:
      'Delete the catalogue entry of a model, and return whether there was one. Every user may then use the model, and it has no end.',
    answer: z.object({ object: z.literal('catalogue_entry'), id: z.string(), deleted: z.boolean() }),
    run: async (call) => {
      const id = call.param('id');
      return { object: 'catalogue_entry', id, deleted: await rows.delete(call, id) };
    },
  }),
];

async function listEntries(call: AdminCall): Promise<object> {
  const { env, account } = call;
  const settings = await readGatewaySettings(env);
  return rows.list(call, (model) => mayUseModel(account, model) && hasAccess(settings, account, model));
}

async function patchEntry(call: AdminCall<z.infer<typeof patchSchema>>): Promise<object> {
  const { body, env, now } = call;
  const model = call.param('id');
  if (await rows.isFull(call, model))
    throw new ApiError(
      'unprocessable_content',
      `The catalogue already has ${CATALOGUE_MAX} models, the maximum. Delete some first.`,
    );
  if (body.owner_id != null) await requireUser(env, body.owner_id);
  const before = await rows.find(call, model);
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
  return rows.write(call, model, { row, set, before });
}

const NOTHING = {
  ownerId: null,
  access: null,
  alwaysOn: false,
  deprecatedAt: null,
  sunsetAt: null,
  successor: null,
};

/** The sunset must not be before the deprecation (RFC 9745 §4). @throws ApiError 422 */
function requireOrder({ model, deprecatedAt, sunsetAt, successor }: Row): void {
  if (deprecatedAt !== null && sunsetAt !== null && sunsetAt < deprecatedAt)
    throw new ApiError('unprocessable_content', 'sunset_at: is before deprecated_at.', { param: 'sunset_at' });
  if (successor === model)
    throw new ApiError('unprocessable_content', 'successor: a model cannot be its own successor.', {
      param: 'successor',
    });
}

/**
 * Adds `next`, the successor of the key `old`, to each access list that contains `old`. Removes the predecessor of
 * `old` there, so that lists do not grow with each rotation.
 */
export function extendAccessLists(
  env: AdminCall['env'],
  old: { id: string; rotatedFrom: string | null },
  next: string,
) {
  const { access } = catalogue;
  const { jsonListHas, jsonListWith } = sqlFragments(env);
  const list = jsonListWith(access, next, old.rotatedFrom ?? '');
  return database(env).update(catalogue).set({ access: list }).where(jsonListHas(access, old.id));
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
    deprecated_at: isoTime(row.deprecatedAt),
    sunset_at: isoTime(row.sunsetAt),
    successor: row.successor,
    updated_at: rfc3339(row.updatedAt),
  };
}
