import { eq } from 'drizzle-orm';
import * as z from 'zod';
import { idSchema } from '../../../shared/lattice/node-record.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { ROLES, sessions, users } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { newId } from '../../accounts/secrets.ts';
import { leaveProject } from '../../accounts/user-keys.ts';
import { displayNameSchema, emailSchema } from '../../http/common-schemas.ts';
import { limitsSchema } from '../../settings/limits-schema.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { applyChange, createOnce } from '../apply-change.ts';
import { eraseUser } from '../erase-user.ts';
import { isoTime, listSchema, readPage } from '../field-schemas.ts';
import { pageSchema, rfc3339 } from '../pagination.ts';
import { requireProject, requireProvider } from '../require-existing.ts';
import { findMember } from './members.ts';

type User = typeof users.$inferSelect;

const identityText = z.string().min(1).max(512);
export const createUserSchema = z.strictObject({
  name: displayNameSchema,
  email: emailSchema.nullable().optional(),
  role: z.enum(ROLES).default('consumer'),
  provider: idSchema.nullable().optional(),
  project_id: z.string().max(64).nullable().optional(),
  /** Limits that all of the user's keys share; null: the setting user_limits applies, {}: no limits. */
  limits: limitsSchema.nullable().optional(),
  /** The identity provider, and its name for the user (`sub`). Set both or none. */
  issuer: identityText.nullable().optional(),
  subject: identityText.nullable().optional(),
});
export const patchUserSchema = z.strictObject({
  name: displayNameSchema.optional(),
  email: emailSchema.nullable().optional(),
  role: z.enum(ROLES).optional(),
  provider: idSchema.nullable().optional(),
  project_id: z.string().max(64).nullable().optional(),
  limits: limitsSchema.nullable().optional(),
  disabled: z.boolean().optional(),
});

const userSchema = z.object({
  object: z.literal('user'),
  id: z.string(),
  name: z.string(),
  email: z.string().nullable(),
  role: z.enum(ROLES),
  provider: z.string().nullable(),
  project_id: z.string().nullable(),
  limits: limitsSchema.nullable(),
  /** Groups from the user's latest claims. */
  groups: z.array(z.string()),
  issuer: z.string().nullable(),
  subject: z.string().nullable(),
  created_at: z.iso.datetime(),
  last_login_at: z.iso.datetime().nullable(),
  disabled_at: z.iso.datetime().nullable(),
});

const OPERATOR = { role: 'operator' } as const;

export const userRoutes: readonly AdminRoute[] = [
  route({
    ...OPERATOR,
    method: 'post',
    path: '/users',
    summary: 'Create a user. A login with an identity provider creates its user automatically.',
    body: createUserSchema,
    answer: userSchema,
    run: createUser,
  }),
  route({
    ...OPERATOR,
    method: 'get',
    path: '/users',
    summary: 'List users, newest first.',
    query: pageSchema,
    answer: listSchema(userSchema),
    run: (call) => readPage(call.env, users, call.query, undefined, viewUser),
  }),
  route({
    ...OPERATOR,
    method: 'get',
    path: '/users/:id',
    summary: 'Return one user.',
    answer: userSchema,
    run: async (call) => viewUser(await found(call)),
  }),
  route({
    ...OPERATOR,
    method: 'patch',
    path: '/users/:id',
    summary: 'Change or disable a user. Takes effect for their keys and logins within 5 s.',
    body: patchUserSchema,
    answer: userSchema,
    run: patchUser,
  }),
  route({
    ...OPERATOR,
    method: 'delete',
    path: '/users/:id',
    summary:
      'Delete a user: name, login, keys, files, batches and usage records. Usage totals stay, without the user. One call deletes a part: repeat until days_left is 0.',
    answer: z.object({ object: z.literal('user'), id: z.string(), deleted: z.boolean(), days_left: z.number() }),
    run: async (call) => {
      const user = await found(call);
      return { object: 'user', id: user.id, deleted: true, days_left: await eraseUser(call, user) };
    },
  }),
];

export async function createUser(call: AdminCall<z.infer<typeof createUserSchema>>): Promise<Response> {
  const { body, env, now } = call;
  const { name, email = null, role, provider = null, project_id = null, issuer = null, subject = null } = body;
  const { limits = null } = body;
  if ((issuer === null) !== (subject === null)) {
    throw new ApiError('unprocessable_content', 'issuer and subject must be given together.', { param: 'issuer' });
  }
  await requireFitting(call, role, provider, project_id);
  const id = newId('user');
  const ends = { lastLoginAt: null, claimsAt: null, disabledAt: null };
  const who = { id, name, email, role, provider, projectId: project_id, limits, groups: null, issuer, subject };
  const row = { ...who, createdAt: now, ...ends };
  return createOnce(call, {
    action: 'user.create',
    object: id,
    after: viewUser(row),
    statements: [database(env).insert(users).values(row)],
    shown: viewUser(row),
    find: async (known) => {
      const [user] = await queryOrUnavailable(database(env).select().from(users).where(eq(users.id, known)));
      return user && viewUser(user);
    },
  });
}

export async function patchUser(call: AdminCall<z.infer<typeof patchUserSchema>>): Promise<object> {
  const { body, env, now } = call;
  const row = await found(call);
  const { name, email, role, provider, project_id, limits, disabled } = body;
  const newRights = { role: role ?? row.role, provider: provider === undefined ? row.provider : provider };
  await requireFitting(
    call,
    newRights.role,
    newRights.provider,
    project_id === row.projectId ? null : (project_id ?? null),
  );
  const changesRights = role !== undefined || provider !== undefined || project_id !== undefined;
  // Only given fields are written: a request that changes the name must not enable a user that another request
  // disables.
  const set = {
    ...(name !== undefined && { name }),
    ...(email !== undefined && { email }),
    ...(role !== undefined && { role }),
    ...(provider !== undefined && { provider }),
    ...(project_id !== undefined && { projectId: project_id }),
    ...(limits !== undefined && { limits }),
    // Claims that the identity provider made before this change must not undo the change.
    ...(changesRights && { claimsAt: now }),
    ...(disabled !== undefined && { disabledAt: disabled ? (row.disabledAt ?? now) : null }),
  };
  if (Object.keys(set).length === 0) return viewUser(row);
  const db = database(env);
  const update = db.update(users).set(set).where(eq(users.id, row.id));
  // A disabled user is logged out, and stays logged out when enabled again.
  const out = disabled ? [db.delete(sessions).where(eq(sessions.userId, row.id))] : [];
  // If the home project changes, the user leaves the previous home project, unless the user is a member of it.
  const { projectId } = row;
  const moved = projectId !== null && set.projectId !== undefined && set.projectId !== projectId;
  const leaves = moved && (await findMember(env, projectId, row.id)) === undefined;
  const ends = leaves ? leaveProject(env, { userId: row.id, projectId }, call) : [];
  const after = viewUser({ ...row, ...set });
  await applyChange(call, [update, ...ends, ...out], {
    action: 'user.update',
    object: row.id,
    before: viewUser(row),
    after,
  });
  return after;
}

async function requireFitting(
  { env }: AdminCall<unknown>,
  role: User['role'],
  provider: string | null,
  project: string | null,
): Promise<void> {
  if (role === 'provider') await requireProvider(env, provider);
  if (project !== null) await requireProject(env, project);
}

async function found(call: AdminCall<unknown, unknown>): Promise<User> {
  const id = call.param('id');
  const [row] = await queryOrUnavailable(database(call.env).select().from(users).where(eq(users.id, id)));
  if (row !== undefined) return row;
  throw new ApiError('not_found', `There is no user with id "${id.slice(0, 64)}".`);
}

export function viewUser(row: User): z.infer<typeof userSchema> {
  return {
    object: 'user',
    id: row.id,
    name: row.name,
    email: row.email,
    role: row.role,
    provider: row.provider,
    project_id: row.projectId,
    limits: row.limits,
    groups: row.groups ?? [],
    issuer: row.issuer,
    subject: row.subject,
    created_at: rfc3339(row.createdAt),
    last_login_at: isoTime(row.lastLoginAt),
    disabled_at: isoTime(row.disabledAt),
  };
}
