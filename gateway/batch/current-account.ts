import { type Account, BOOTSTRAP } from '../accounts/account.ts';
import { findKey, findUser } from '../accounts/look-up.ts';
import type { Env } from '../env.ts';

/**
 * The account of a batch as it is now: a batch outlives every cache, and lists, limits and rights that were changed meanwhile hold for its
 * next line. Undefined: the key was revoked, deleted or has expired, or its user or project was disabled. A store that cannot say is no reason to end a
 * batch: then it stays as it was.
 */
export async function currentAccount(env: Env, known: Account, now: number): Promise<Account | undefined> {
  const { keyId, userId } = known;
  if (keyId === BOOTSTRAP.keyId) return known;
  try {
    // A login's batches belong to its user, and it has no key.
    if (keyId === userId) {
      const found = await findUser(env, { id: userId });
      return typeof found === 'string' ? undefined : found.account;
    }
    const found = await findKey(env, { id: keyId }, now);
    return typeof found === 'string' ? undefined : found;
  } catch {
    return known;
  }
}
