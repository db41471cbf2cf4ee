import type { Account } from '../accounts/account.ts';
import { authenticateUncached } from '../accounts/authenticate.ts';
import type { Env } from '../env.ts';

export interface AdminCaller {
  account: Account;
  /**
   * True if the caller logged in at an identity provider, by browser or by token. False for an API key, even if a
   * browser logged in with it.
   */
  login: boolean;
}

/** Returns the caller of a request to the admin API. Reads D1 each time. @throws ApiError 401, 503 */
export async function adminCaller(env: Env, request: Request, now: number): Promise<AdminCaller> {
  const account = await authenticateUncached(env, request, now);
  return { account, login: account.userId === account.keyId };
}
