import { authenticateUncached } from '../accounts/authenticate.ts';
import type { Env } from '../env.ts';
import type { AdminCaller } from './route.ts';

/** The caller of the admin API. Asks D1 each time. @throws ApiError 401, 503 */
export async function adminCaller(env: Env, request: Request, now: number): Promise<AdminCaller> {
  const account = await authenticateUncached(env, request, now);
  return { account, login: account.userId === account.keyId };
}
