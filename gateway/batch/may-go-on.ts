import { eq } from 'drizzle-orm';
import { type Account, BOOTSTRAP } from '../accounts/account.ts';
import { database } from '../accounts/database.ts';
import { apiKeys, projects, users } from '../accounts/schema.ts';
import type { Env } from '../env.ts';

/**
 * Whether the key or user that made a batch may still ask: a batch outlives every cache. False: the key was revoked or has expired, or its
 * user or project was disabled. A store that cannot say is no reason to end a batch.
 */
export async function mayGoOn(env: Env, { keyId, userId, projectId }: Account, now: number): Promise<boolean> {
  if (keyId === BOOTSTRAP.keyId) return true;
  const db = database(env);
  try {
    const [[key], [user], [project]] = await db.batch([
      db.select().from(apiKeys).where(eq(apiKeys.id, keyId)),
      db
        .select()
        .from(users)
        .where(eq(users.id, userId ?? '')),
      db
        .select()
        .from(projects)
        .where(eq(projects.id, projectId ?? '')),
    ]);
    const ended = key !== undefined && (key.revokedAt !== null || (key.expiresAt !== null && key.expiresAt <= now));
    return !ended && (user?.disabledAt ?? null) === null && (project?.disabledAt ?? null) === null;
  } catch {
    return true;
  }
}
