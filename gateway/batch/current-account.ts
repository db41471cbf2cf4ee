import { type Account, BOOTSTRAP_ACCOUNT } from '../accounts/account.ts';
import { findKey, findUser, successorOf } from '../accounts/find-key.ts';
import type { Env } from '../env.ts';

/** Rotations that a batch follows at once. */
const ROTATIONS_MAX = 16;

/**
 * The account of a batch as it is now: a batch outlives every cache, and lists, limits and rights that were changed meanwhile hold for its
 * next line. A key that was rotated hands its batches to the one that took its place. Undefined: the key was revoked, deleted or has expired, or its
 * user or project was disabled. A store that cannot say is no reason to end a batch: then it stays as it was.
 */
export async function currentAccount(env: Env, known: Account, now: number): Promise<Account | undefined> {
  const { keyId, userId } = known;
  if (keyId === BOOTSTRAP_ACCOUNT.keyId) return known;
  try {
    // A login's batches belong to its user, and it has no key.
    if (keyId === userId) {
      const found = await findUser(env, { id: userId });
      return typeof found === 'string' ? undefined : found.account;
    }
    return await accountOf(env, keyId, now);
  } catch {
    return known;
  }
}

async function accountOf(env: Env, keyId: string, now: number): Promise<Account | undefined> {
  let id: string | undefined = keyId;
  for (let i = 0; id !== undefined && i < ROTATIONS_MAX; i++) {
    const found = await findKey(env, { id }, now);
    if (typeof found !== 'string') return found;
    // Rotation lets the old key expire. One that was revoked hands nothing on.
    id = found === 'expired' ? await successorOf(env, id) : undefined;
  }
  return undefined;
}
