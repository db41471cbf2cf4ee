import { type Account, BOOTSTRAP_ACCOUNT } from '../accounts/account.ts';
import { findKey, findUser, successorOf } from '../accounts/find-key.ts';
import type { Env } from '../env.ts';

/** Maximum key rotations that one call follows. */
const ROTATIONS_MAX = 16;

/**
 * Returns the current account of a batch. A batch may run for days, so the account is read again: changed allow-lists,
 * limits and rights apply to its next line. After a rotation, batches of the old key continue under the new key.
 * Undefined: the key was revoked, deleted or has expired, or its user or project was disabled. If the database is
 * unavailable, the known account is returned, because a batch must not end for that reason.
 */
export async function currentAccount(env: Env, known: Account, now: number): Promise<Account | undefined> {
  const { keyId, userId } = known;
  if (keyId === BOOTSTRAP_ACCOUNT.keyId) return known;
  try {
    // A batch that was created in a login belongs to the user; there is no key.
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
    // After a rotation, the old key expires. A revoked key has no successor.
    id = found === 'expired' ? await successorOf(env, id) : undefined;
  }
  return undefined;
}
