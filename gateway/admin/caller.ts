import { authenticateAnew } from '../accounts/authenticate.ts';
import type { Env } from '../env.ts';
import type { Caller } from './route.ts';

/** Who calls the admin REST; D1 is asked each time. @throws ApiError 401, 503 */
export async function callerOf(env: Env, request: Request, now: number): Promise<Caller> {
  const account = await authenticateAnew(env, request, now);
  return { account, login: account.userId === account.keyId };
}
