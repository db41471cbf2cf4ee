/**
 * API keys. Operators see and create all keys. Logged-in users see and create their own, never with more rights than
 * they have.
 */

import { and, eq, gt, isNull, or, type SQL, sql } from 'drizzle-orm';
import * as z from 'zod';
import { idSchema } from '../../../shared/lattice/node-record.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { isRoleAtLeast } from '../../accounts/account.ts';
import { ACCOUNT_SCOPES, apiKeys, ROLES } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { KEY_PREFIX, newId, newSecret } from '../../accounts/secrets.ts';
import {
  isBelowKeyLimit,
  isMemberOf,
  nameIfBelowLimit,
  nameIfUnchanged,
  OWN_KEYS_MAX,
  worksIn,
} from '../../accounts/user-keys.ts';
import type { Env } from '../../env.ts';
import { displayNameSchema } from '../../http/common-schemas.ts';
import { isLimited } from '../../settings/limits-schema.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { applyChange, createOnce, notifyIsolates } from '../apply-change.ts';
import {
  expiryMs,
  expirySchema,
  grantsSchema,
  listSchema,
  NO_RESTRICTIONS,
  readPage,
  restrictionColumns,
  restrictionsSchema,
  servingOptionsSchema,
} from '../field-schemas.ts';
import { extendAccessLists } from '../models/catalogue.ts';
import { pageSchema } from '../pagination.ts';
import { requireProject, requireProvider, requireUser } from '../require-existing.ts';
import { type KeyRow, keySchema, keyView } from './key-view.ts';

const idText = z.string().max(64);
const changeable = restrictionsSchema
  .extend(grantsSchema.shape)
  .extend(servingOptionsSchema.shape)
  .extend({
    name: displayNameSchema,
    scopes: z.array(z.enum(ACCOUNT_SCOPES)).max(ACCOUNT_SCOPES.length).nullable(),
    expires_at: expirySchema,
  });
const patchSchema = changeable.partial().strict();
const createSchema = changeable
  .partial()
  .extend({
    name: displayNameSchema,
    role: z.enum(ROLES).default('consumer'),
    provider: idSchema.nullable().optional(),
    user_id: idText.nullable().optional(),
    project_id: idText.nullable().optional(),
  })
  .strict();
const rotateSchema = z.strictObject({
  /** Seconds for which the old key remains valid; 0: it ends now. */
  overlap_seconds: z
    .number()
    .int()
    .min(0)
    .max(30 * 86_400)
    .default(86_400),
});
const filterSchema = pageSchema.extend({ user_id: idText.optional(), project_id: idText.optional() });

const newKeySchema = keySchema.extend({ key: z.string() });

const COMMON = { role: 'consumer', login: true } as const;

export const keyRoutes: readonly AdminRoute[] = [
  route({
    ...COMMON,
    method: 'post',
    path: '/keys',
    summary: 'Create an API key. It is shown once.',
    body: createSchema,
    answer: newKeySchema,
    again: keySchema,
    run: createKey,
  }),
  route({
    ...COMMON,
    method: 'get',
    path: '/keys',
    summary: 'List API keys, newest first.',
    query: filterSchema,
    answer: listSchema(keySchema),
    run: (call) => {
      const { user_id, project_id, ...page } = call.query;
      const where = and(
        own(call),
        user_id === undefined ? undefined : eq(apiKeys.userId, user_id),
        project_id === undefined ? undefined : eq(apiKeys.projectId, project_id),
      );
      return readPage(call.env, apiKeys, page, where, keyView);
    },
  }),
  route({
    ...COMMON,
    method: 'get',
    path: '/keys/:id',
    summary: 'Return one API key.',
    answer: keySchema,
    run: async (call) => keyView(await found(call)),
  }),
  route({
    ...COMMON,
    method: 'patch',
    path: '/keys/:id',
    summary:
      'Change an API key. Absent members stay unchanged. Takes effect everywhere within 5 s, also for the keys of machines that the key approved. If the key gets limits, the keys of these machines are revoked.',
    body: patchSchema,
    answer: keySchema,
    run: patchKey,
  }),
  route({
    ...COMMON,
    method: 'post',
    path: '/keys/:id/rotate',
    summary: 'Create a new key with the same rights. The old key stays valid for the overlap.',
    body: rotateSchema,
    answer: newKeySchema,
    again: keySchema,
    run: rotateKey,
  }),
  route({
    ...COMMON,
    method: 'delete',
    path: '/keys/:id',
    summary: 'Revoke an API key. Takes effect everywhere within 5 s. Repeating is safe.',
    answer: keySchema,
    run: revokeKey,
  }),
];

async function createKey(call: AdminCall<z.infer<typeof createSchema>>): Promise<Response> {
  const { body, account, env, now } = call;
  const { name, role, provider = null, user_id, project_id, scopes = null, expires_at, ...narrowed } = body;
  refuseGrants(call, body);
  if (!isRoleAtLeast(account.role, role)) throw denied(`Only operators can create a key with the role ${role}.`);
  const operator = account.role === 'operator';
  if (!operator && (user_id ?? account.userId) !== account.userId)
    throw denied('Only operators can create keys for other users.');
  const wanted = project_id ?? account.projectId;
  const requireMember = async () => {
    if (operator || wanted === undefined || (await worksIn(env, account.userId ?? '', wanted))) return;
    throw denied('You are not a member of that project.');
  };
  await requireMember();
  const userId = operator ? (user_id ?? null) : (account.userId ?? null);
  const user = userId === null ? undefined : await requireUser(env, userId);
  const projectId = operator ? (project_id ?? user?.projectId ?? null) : (wanted ?? null);
  if (projectId !== null) await requireProject(env, projectId);
  if (!operator && provider !== null && provider !== account.provider)
    throw denied('You do not belong to that provider.');
  const ofProvider = role === 'provider' ? (provider ?? user?.provider ?? account.provider ?? null) : null;
  if (role === 'provider') await requireProvider(env, ofProvider);
  const { plaintext, hash, prefix } = newSecret(KEY_PREFIX);
  const row: KeyRow = {
    ...NO_RESTRICTIONS,
    ...restrictionColumns(narrowed),
    id: newId('key'),
    hash,
    prefix,
    name,
    role,
    provider: ofProvider,
    userId,
    projectId,
    scopes,
    rotatedFrom: null,
    grantedBy: null,
    createdAt: now,
    expiresAt: expiryMs(expires_at, now),
    lastUsedAt: null,
    revokedAt: null,
  };
  if (operator) return insert(call, row, plaintext, { action: 'key.create', statements: [], name });
  const check = async () => {
    await requireMember();
    await requireKeysBelowLimit(call);
  };
  // The user may leave the project at this moment: the statement that inserts the key checks it again.
  const may = projectId === null ? sql`true` : isMemberOf(userId ?? '', projectId);
  const named = nameIfBelowLimit(sql<string>`CASE WHEN ${may} THEN ${name} END`, userId ?? '', now);
  return insert(call, row, plaintext, { action: 'key.create', statements: [], name: named, check });
}

function insert(
  call: AdminCall<unknown, unknown>,
  row: KeyRow,
  plaintext: string,
  {
    statements,
    name,
    ...what
  }: Pick<Parameters<typeof createOnce>[1], 'action' | 'statements' | 'check'> & { name: string | SQL<string> },
): Promise<Response> {
  return createOnce(call, {
    ...what,
    object: row.id,
    after: keyView(row),
    statements: [
      database(call.env)
        .insert(apiKeys)
        .values({ ...row, name }),
      ...statements,
    ],
    shown: { ...keyView(row), key: plaintext },
    find: async (id) => {
      const known = await findKey(call.env, eq(apiKeys.id, id));
      return known && keyView(known);
    },
  });
}

async function patchKey(call: AdminCall<z.infer<typeof patchSchema>>): Promise<object> {
  const { body, env, now } = call;
  refuseGrants(call, body);
  const row = await found(call);
  const { name, scopes, expires_at, ...narrowed } = body;
  const set = {
    ...restrictionColumns(narrowed),
    ...(name !== undefined && { name }),
    ...(scopes !== undefined && { scopes }),
    ...(expires_at !== undefined && { expiresAt: expiryMs(expires_at, now) }),
  };
  if (Object.keys(set).length === 0) return keyView(row);
  if (Object.keys(set).some((field) => field !== 'name')) await requireMembership(call, row);
  const after = keyView({ ...row, ...set });
  const update = database(env).update(apiKeys).set(set).where(eq(apiKeys.id, row.id));
  await applyChange(call, [update], { action: 'key.update', object: row.id, before: keyView(row), after });
  if (typeof set.expiresAt === 'number') await endGranted(call, row.id, { expiresAt: set.expiresAt });
  if (isLimited({ ...row, ...set })) await endGranted(call, row.id, { revokedAt: now });
  return after;
}

/**
 * An operator may give a user a key of a project that the user does not work in. Its restrictions are the operator's.
 * @throws ApiError 403
 */
async function requireMembership({ account, env }: AdminCall<unknown>, { projectId }: KeyRow): Promise<void> {
  if (account.role === 'operator' || projectId === null) return;
  if (await worksIn(env, account.userId ?? '', projectId)) return;
  throw denied('You are not a member of the project of this key: you can rename it, and only operators can change it.');
}

async function rotateKey(call: AdminCall<z.infer<typeof rotateSchema>>): Promise<Response> {
  const { body, env, now } = call;
  const old = await found(call);
  const { plaintext, hash, prefix } = newSecret(KEY_PREFIX);
  const row = { ...old, id: newId('key'), hash, prefix, rotatedFrom: old.id, createdAt: now, lastUsedAt: null };
  const end = Math.min(old.expiresAt ?? Number.POSITIVE_INFINITY, now + body.overlap_seconds * 1000);
  const ending = database(env).update(apiKeys).set({ expiresAt: end }).where(eq(apiKeys.id, old.id));
  // During the overlap the old key and the new key are both active, so the new key counts against the user's maximum. A
  // rotation without an overlap adds no active key and is always allowed, so that a leaked key can be replaced.
  const counted = call.account.role !== 'operator' && body.overlap_seconds > 0;
  const check = async () => {
    await requireRotatable(call, old);
    if (counted) await requireKeysBelowLimit(call, ' or rotate without an overlap');
  };
  const next = nameIfUnchanged(old);
  const name = counted ? nameIfBelowLimit(next, old.userId ?? '', now) : next;
  const statements = [ending, extendAccessLists(env, old, row.id)];
  const response = await insert(call, row, plaintext, { action: 'key.rotate', statements, name, check });
  if (response.status === 201) {
    await applyChange(call, [], {
      action: 'key.update',
      object: old.id,
      before: keyView(old),
      after: keyView({ ...old, expiresAt: end }),
    });
    await endGranted(call, old.id, { expiresAt: end });
  }
  return response;
}

/**
 * Refuses to rotate a key that has ended, was already rotated, or was changed since it was read: the new key copies the
 * rights and the end that were read.
 * @throws ApiError 404, 409, 422
 */
async function requireRotatable(call: AdminCall<unknown, unknown>, read: KeyRow): Promise<void> {
  const { env, now } = call;
  const old = await found(call);
  if (old.revokedAt !== null) throw new ApiError('unprocessable_content', 'A revoked key cannot be rotated.');
  if (old.expiresAt !== null && old.expiresAt <= now)
    throw new ApiError('unprocessable_content', 'An expired key cannot be rotated: create a new one.');
  const next = await findKey(env, eq(apiKeys.rotatedFrom, old.id));
  if (
    next === undefined &&
    JSON.stringify(keyView(old)) === JSON.stringify(keyView({ ...read, lastUsedAt: old.lastUsedAt }))
  )
    return;
  if (next === undefined)
    throw new ApiError('conflict', 'This key was changed a moment ago: check it, then rotate it again.');
  const message = `This key was already rotated: rotate its successor "${next.id}", or create a new key.`;
  throw new ApiError('unprocessable_content', message);
}

/** D1 is changed first: even if a later step fails, no reader of D1 sees the key as valid. */
async function revokeKey(call: AdminCall): Promise<object> {
  const row = await found(call);
  if (row.revokedAt !== null) {
    await endGranted(call, row.id, { revokedAt: call.now });
    await notifyIsolates(call.env);
    return keyView(row);
  }
  const after = keyView({ ...row, revokedAt: call.now });
  const update = database(call.env).update(apiKeys).set({ revokedAt: call.now }).where(eq(apiKeys.id, row.id));
  await applyChange(call, [update], { action: 'key.revoke', object: row.id, before: keyView(row), after });
  await endGranted(call, row.id, { revokedAt: call.now });
  return after;
}

/**
 * Ends the keys of machines whose logins this key approved: a thief of this key may have approved some of these logins.
 * A repeated call completes a call that failed halfway.
 */
async function endGranted(
  call: AdminCall<unknown>,
  id: string,
  end: { revokedAt: number } | { expiresAt: number },
): Promise<void> {
  const db = database(call.env);
  const later = 'revokedAt' in end ? undefined : or(isNull(apiKeys.expiresAt), gt(apiKeys.expiresAt, end.expiresAt));
  const working = and(eq(apiKeys.grantedBy, id), isNull(apiKeys.revokedAt), later);
  const action = 'revokedAt' in end ? 'key.revoke' : 'key.update';
  // The query does not return keys that were already revoked, so the loop ends.
  for (;;) {
    const rows = await queryOrUnavailable(db.select().from(apiKeys).where(working).limit(OWN_KEYS_MAX));
    if (rows.length === 0) return;
    for (const row of rows) {
      const update = db.update(apiKeys).set(end).where(eq(apiKeys.id, row.id));
      const after = keyView({ ...row, ...end });
      await applyChange(call, [update], { action, object: row.id, before: keyView(row), after });
    }
  }
}

/** @throws ApiError 422 if the caller has the maximum number of active keys */
export async function requireKeysBelowLimit(
  { env, account, now }: AdminCall<unknown, unknown>,
  or = '',
): Promise<void> {
  if (await isBelowKeyLimit(env, account.userId ?? '', now)) return;
  throw new ApiError(
    'unprocessable_content',
    `You already have ${OWN_KEYS_MAX} valid keys, the maximum: revoke some first${or}.`,
  );
}

/** Refuses fields that only operators may set. @throws ApiError 403 */
function refuseGrants({ account }: AdminCall<unknown, unknown>, body: { limits?: unknown; no_track?: unknown }): void {
  if (account.role === 'operator' || (body.limits === undefined && body.no_track === undefined)) return;
  throw denied('Only operators can set limits and no_track.');
}

/** Selects the keys that the caller may see. */
function own({ account }: AdminCall<unknown, unknown>): SQL | undefined {
  return account.role === 'operator' ? undefined : eq(apiKeys.userId, account.userId ?? '');
}

async function found(call: AdminCall<unknown, unknown>): Promise<KeyRow> {
  const id = call.param('id');
  const row = await findKey(call.env, and(eq(apiKeys.id, id), own(call)));
  if (row !== undefined) return row;
  throw new ApiError('not_found', `There is no key with id "${id.slice(0, 64)}".`);
}

async function findKey(env: Env, where: SQL | undefined): Promise<KeyRow | undefined> {
  const [row] = await queryOrUnavailable(database(env).select().from(apiKeys).where(where));
  return row;
}

function denied(message: string): ApiError {
  return new ApiError('permission_denied', message);
}
