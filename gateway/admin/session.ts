/** Routes about one session ask the registry's object for it. */
import { SESSION_PATTERN } from '../../shared/lattice/node.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import type { Env } from '../env.ts';
import { REGISTRY_NAME } from '../registry-name.ts';
import type { Call } from './route.ts';

/** Of the path. @throws ApiError 400 */
export function sessionOf(call: Pick<Call, 'param'>): string {
  const session = call.param('session');
  if (SESSION_PATTERN.test(session)) return session;
  throw new ApiError('invalid_request', 'This is no session id.', { param: 'session' });
}

type Registry = ReturnType<Env['REGISTRY']['getByName']>;

/** @throws ApiError 503 */
export async function asking<T>(env: Env, ask: (registry: Registry) => Promise<T>): Promise<T> {
  try {
    return await ask(env.REGISTRY.getByName(REGISTRY_NAME));
  } catch (cause) {
    throw new ApiError('server_is_overloaded', 'The registry cannot be reached. Try again shortly.', { cause });
  }
}
