/** Deletes a user: personal data immediately, usage records day by day. Usage totals stay, without the user. */
import { and, countDistinct, desc, eq, inArray, isNull, like, or, sql } from 'drizzle-orm';
import {
  accessRequests,
  apiKeys,
  auditLog,
  deviceLogins,
  joinTokens,
  memberLimits,
  projectMembers,
  providerRights,
  sessions,
  users,
} from '../accounts/account-tables.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import { CONFIRMATION_NAME } from '../accounts/login/confirmation-object.ts';
import type { Env } from '../env.ts';
import { batches, deletedFiles, files, functionSecrets, uploads } from '../files/file-tables.ts';
import { HOURS_PER_DAY, shardsOf, usageShardOf } from '../usage/usage-row.ts';
import { usageTotals } from '../usage/usage-tables.ts';
import { foldUser } from '../usage/usage-totals.ts';
import type { AdminCall } from './admin-route.ts';
import { applyChange } from './apply-change.ts';

/**
 * Maximum days per call of `eraseUser`. Each day has 24 usage objects, and a Worker's request may call only a limited
 * number of objects.
 */
const DAYS_PER_CALL = 4;
/** Maximum batches per call of `eraseUser`, for the same reason: each batch is an object. */
const BATCHES_PER_CALL = 25;
const HOUR_MS = 60 * 60_000;
const GONE = 'deleted';
const ERASE = 'user.erase';

/**
 * Runs one step of the deletion. Call it until it returns 0. If a call fails, the next call continues its work.
 * @returns the number of days of usage records that are left, at least 1 while batches are left; 0: the deletion is
 * complete
 */
export async function eraseUser(call: AdminCall<unknown, unknown>, row: typeof users.$inferSelect): Promise<number> {
  const { id: user } = row;
  const { env, now } = call;
  if (!(await isForgotten(call, row))) await forgetWho(call, user);
  // At each call, and after the keys and sessions have ended: a page of the person may still have been writing.
  await queryOrUnavailable(env.CONVERSATIONS.getByName(user).clear());
  const batchesLeft = await forgetFiles(call, user);
  // Usage of the last minutes may not have reached the totals in D1, so the objects of the last two hours are always
  // called.
  await forgetHours(env, user, [usageShardOf(now - HOUR_MS), usageShardOf(now)]);
  const days = usageTotals.day;
  const mine = eq(usageTotals.user, user);
  const db = database(env);
  const found = await queryOrUnavailable(
    db.selectDistinct({ day: days }).from(usageTotals).where(mine).orderBy(days).limit(DAYS_PER_CALL),
  );
  for (const { day } of found) {
    await forgetHours(env, user, shardsOf(day));
    await queryOrUnavailable(foldUser(env, user, day));
  }
  const [left] = await queryOrUnavailable(
    db
      .select({ n: countDistinct(days) })
      .from(usageTotals)
      .where(mine),
  );
  return Math.max(left?.n ?? 0, batchesLeft ? 1 : 0);
}

/**
 * True if the personal data was deleted and none was written since. The audit log is checked too, because an existing
 * user may be named `deleted`, like deleted users.
 */
async function isForgotten({ env }: AdminCall<unknown, unknown>, row: typeof users.$inferSelect): Promise<boolean> {
  if (row.name !== GONE || row.disabledAt === null || row.email !== null || row.subject !== null) return false;
  const { id, object, action } = auditLog;
  const erased = and(eq(object, row.id), eq(action, ERASE));
  return (await queryOrUnavailable(database(env).select({ id }).from(auditLog).where(erased).limit(1))).length > 0;
}

/**
 * Deletes name, address and login, the names of the user's keys, and the details of user and keys in the audit log. The
 * ids stay and no longer identify a person.
 */
async function forgetWho(call: AdminCall<unknown, unknown>, user: string): Promise<void> {
  const db = database(call.env);
  const { now } = call;
  const nobody = {
    name: GONE,
    email: null,
    issuer: null,
    subject: null,
    provider: null,
    projectId: null,
    groups: null,
    lastLoginAt: null,
  };
  const keys = db.select({ id: apiKeys.id }).from(apiKeys).where(eq(apiKeys.userId, user));
  const rights = db.select({ id: providerRights.id }).from(providerRights).where(eq(providerRights.userId, user));
  // Access requests that were decided long ago are only in the audit log.
  const asker = sql`${auditLog.after} ->> 'user_id'`;
  const requests = and(like(auditLog.action, 'access_request.%'), eq(asker, user));
  const statements = [
    db
      .update(apiKeys)
      .set({ revokedAt: now })
      .where(and(eq(apiKeys.userId, user), isNull(apiKeys.revokedAt))),
    db.update(apiKeys).set({ name: GONE, prefix: '' }).where(eq(apiKeys.userId, user)),
    db
      .update(users)
      .set({ ...nobody, role: 'consumer', disabledAt: sql`coalesce(${users.disabledAt}, ${now})` })
      .where(eq(users.id, user)),
    db.delete(sessions).where(eq(sessions.userId, user)),
    db
      .update(auditLog)
      .set({ before: null, after: null })
      .where(or(eq(auditLog.object, user), inArray(auditLog.object, keys), requests)),
    db.delete(accessRequests).where(eq(accessRequests.userId, user)),
    db
      .update(joinTokens)
      .set({ revokedAt: now })
      .where(and(inArray(joinTokens.rightId, rights), isNull(joinTokens.revokedAt))),
    db.delete(providerRights).where(eq(providerRights.userId, user)),
    db.delete(projectMembers).where(eq(projectMembers.userId, user)),
    db.delete(memberLimits).where(eq(memberLimits.userId, user)),
    db.delete(deviceLogins).where(eq(deviceLogins.userId, user)),
  ];
  await queryOrUnavailable(call.env.CONFIRMATION.getByName(CONFIRMATION_NAME).forget(user));
  await applyChange(call, statements, { action: ERASE, object: user });
}

/**
 * Deletes the user's files and batches. Files and batches of projects stay. A running batch ends immediately, without
 * results. The files' bytes are deleted by the next sweep.
 * @returns whether batches may be left
 */
async function forgetFiles({ env, now }: AdminCall<unknown, unknown>, user: string): Promise<boolean> {
  const db = database(env);
  const keys = db
    .select({ owner: sql`'key:' || ${apiKeys.id}` })
    .from(apiKeys)
    .where(eq(apiKeys.userId, user));
  const isTheirs = (
    owner: (typeof files | typeof deletedFiles | typeof uploads | typeof batches | typeof functionSecrets)['owner'],
  ) => or(eq(owner, `user:${user}`), inArray(owner, keys));
  const theirs = db.select({ id: batches.id }).from(batches).where(isTheirs(batches.owner));
  const some = await queryOrUnavailable(theirs.orderBy(desc(batches.open)).limit(BATCHES_PER_CALL));
  const ids = some.map(({ id }) => id);
  // Rows of batches are deleted last. If this function stops halfway, the next call still finds the rows, and calls the
  // objects of these batches again.
  await queryOrUnavailable(Promise.all(ids.map((id) => env.BATCH.getByName(id).forget())));
  await queryOrUnavailable(
    db.batch([
      db.delete(batches).where(inArray(batches.id, ids)),
      db.update(files).set({ filename: GONE, expiresAt: now }).where(isTheirs(files.owner)),
      db.delete(functionSecrets).where(isTheirs(functionSecrets.owner)),
      db.delete(deletedFiles).where(isTheirs(deletedFiles.owner)),
      db.update(uploads).set({ filename: GONE, expiresAt: now }).where(isTheirs(uploads.owner)),
    ]),
  );
  return ids.length === BATCHES_PER_CALL;
}

async function forgetHours(env: Env, user: string, hours: readonly string[]): Promise<void> {
  if (hours.length > HOURS_PER_DAY)
    throw new RangeError(`forgetHours got ${hours.length} hours; at most ${HOURS_PER_DAY} are allowed`);
  await queryOrUnavailable(Promise.all(hours.map((shard) => env.USAGE.getByName(shard).forget(user))));
}
