/** Notifies the registry of changes in D1, so that every isolate gets them with the next snapshot. */
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { Env } from '../env.ts';
import { REGISTRY_OBJECT_NAME } from './registry-object-name.ts';

/**
 * Called after the change was stored. If the registry does not answer, the error says that the request may be repeated.
 */
export async function notifyRegistry(
  env: Pick<Env, 'REGISTRY'>,
  call: (registry: ReturnType<Env['REGISTRY']['getByName']>) => Promise<unknown>,
): Promise<void> {
  try {
    await call(env.REGISTRY.getByName(REGISTRY_OBJECT_NAME));
  } catch (cause) {
    const message =
      'The change is stored, but the registry could not be notified: the old state may apply for up to 10 minutes. ' +
      'Repeat the request; this is safe.';
    throw new ApiError('server_is_overloaded', message, { cause });
  }
}
