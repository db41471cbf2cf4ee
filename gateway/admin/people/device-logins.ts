/** Approval of the login of a machine without a browser: the second half of accounts/login/device-routes.ts. */
import { and, count, eq, gt, isNull, lt, ne, or, sql } from 'drizzle-orm';
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { apiKeys, deviceLogins } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import { installationSecret } from '../../accounts/installation-secret.ts';
import { DEVICE_MS, deviceOf, readUserCode } from '../../accounts/login/device-code.ts';
import { sha256Hex } from '../../accounts/secrets.ts';
import type { Env } from '../../env.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { applyChange } from '../apply-change.ts';
import { rfc3339 } from '../pagination.ts';
import { requireProject } from '../require-existing.ts';
import { requireKeysBelowLimit } from './keys.ts';
import { findMember } from './members.ts';

/** Maximum approvals of one user for which no machine has fetched its key. */
const OPEN_MAX = 5;

const bodySchema = z.strictObject({
  /** The code that the machine shows; case and dashes are ignored. */
  user_code: z.string().min(1).max(32),
  /** False: the login is refused, and its client is informed. */
  approve: z.boolean().default(true),
  /**
   * The project for the machine's key, which must be one of the user's. Absent: the project of the approving login or
   * key.
   */
  project_id: z.string().max(64).optional(),
});

const machineSchema = z.object({
  object: z.literal('device'),
  /** Name of the machine as its client sent it; null: this gateway does not remember a login with this code. */
  name: z.string().nullable(),
  began_at: z.iso.datetime().nullable(),
});

export const deviceLoginRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    method: 'post',
    path: '/device-logins/machine',
    summary: 'Return the machine that shows this code. Check it before you approve the login.',
    body: bodySchema.pick({ user_code: true }),
    answer: machineSchema,
    repeatable: true,
    run: async ({ env, now, body }) => {
      const known = deviceOf(await codeOf(env, body.user_code), now);
      return { object: 'device', name: known?.name ?? null, began_at: known ? rfc3339(known.at) : null };
    },
  }),
  route({
    role: 'consumer',
    method: 'post',
    path: '/device-logins',
    summary:
      'Approve or refuse the login of the machine that shows this code. It gets a new API key for your account, which is valid for 30 days. A code is valid for 10 minutes.',
    body: bodySchema,
    answer: z.object({ object: z.literal('device_login'), approved: z.boolean() }),
    repeatable: true,
    status: 202,
    run: approve,
  }),
];

async function approve(call: AdminCall<z.infer<typeof bodySchema>>): Promise<Response> {
  const { account, env, now, body } = call;
  const { userId } = account;
  if (userId === undefined)
    throw new ApiError('permission_denied', 'This key belongs to no user: log in as a user to approve a device.');
  const code = await codeOf(env, body.user_code);
  const approvedBy = call.login ? null : account.keyId;
  const projectId = await projectOf(call, body.project_id);
  if (approvedBy !== null) await requireUnlimited(call, approvedBy);
  if (body.approve) await requireKeysBelowLimit(call);
  const hash = sha256Hex(code);
  const db = database(env);
  const open = and(eq(deviceLogins.userId, userId), gt(deviceLogins.expiresAt, now), ne(deviceLogins.hash, hash));
  const requireRoom = async () => {
    const [mine] = await queryOrUnavailable(db.select({ n: count() }).from(deviceLogins).where(open));
    if ((mine?.n ?? 0) < OPEN_MAX) return;
    const message = `${OPEN_MAX} devices that you approved have not logged in yet. Try again in ten minutes.`;
    throw new ApiError('rate_limit_exceeded', message);
  };
  await requireRoom();
  // The insertion itself counts approvals, because another approval may have been inserted since the check. At the
  // maximum, its user is NULL, which the table refuses.
  const taken = sql`(SELECT count(*) FROM ${deviceLogins} WHERE ${open})`;
  const row = {
    hash,
    userId: sql<string>`CASE WHEN ${taken} < ${OPEN_MAX} THEN ${userId} END`,
    projectId,
    approvedBy,
    denied: !body.approve,
    expiresAt: now + DEVICE_MS,
  };
  // A code belongs to the first user that typed it: a second user cannot take it over, and the first may still refuse
  // it.
  const insert = db.insert(deviceLogins).values(row);
  const { hash: target } = deviceLogins;
  const statements = [
    db.delete(deviceLogins).where(lt(deviceLogins.expiresAt, now)),
    body.approve
      ? insert.onConflictDoNothing()
      : insert.onConflictDoUpdate({ target, set: { denied: true }, setWhere: eq(deviceLogins.userId, userId) }),
  ];
  try {
    await applyChange(call, statements, { action: body.approve ? 'device.approve' : 'device.deny', object: userId });
  } catch (error) {
    await requireRoom();
    throw error;
  }
  return call.c.json({ object: 'device_login', approved: body.approve }, 202, { 'cache-control': 'no-store' });
}

/** @throws ApiError 422 if this gateway did not issue the code */
async function codeOf(env: Env, typed: string): Promise<string> {
  const code = readUserCode(await installationSecret(env), typed);
  if (code !== undefined) return code;
  throw new ApiError('unprocessable_content', 'user_code: is not a code of this gateway.', { param: 'user_code' });
}

/**
 * Returns the project for the machine's key. A login may choose any project of its user; an API key only its own
 * project. @throws ApiError 403
 */
async function projectOf(
  { env, account, login }: AdminCall<unknown>,
  wanted: string | undefined,
): Promise<string | null> {
  const { userId, projectId = null } = account;
  if (wanted === undefined || wanted === projectId) return projectId;
  if (!login || (await findMember(env, wanted, userId)) === undefined)
    throw new ApiError('permission_denied', 'You are not a member of that project.', { param: 'project_id' });
  await requireProject(env, wanted);
  return wanted;
}

/**
 * Refuses a key with limits. Such limits count for each key separately, so the machine's key would get the same amount
 * again.
 * @throws ApiError 403
 */
async function requireUnlimited({ env }: AdminCall<unknown>, keyId: string): Promise<void> {
  // PostgreSQL compares JSON only as text.
  const free = or(isNull(apiKeys.limits), eq(sql`cast(${apiKeys.limits} AS text)`, '{}'));
  const [row] = await queryOrUnavailable(
    database(env)
      .select({ id: apiKeys.id })
      .from(apiKeys)
      .where(and(eq(apiKeys.id, keyId), free)),
  );
  if (row !== undefined) return;
  throw new ApiError(
    'permission_denied',
    'This key has its own limits, so it cannot approve a device: log in as a user, or use another key.',
  );
}
