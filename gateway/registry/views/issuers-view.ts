import { ApiError } from '../../../shared/openai/api-errors.ts';
import type { Env } from '../../env.ts';
import type { Background } from '../../platform/object-context.ts';
import { isolateSnapshot, type RegistrySnapshot } from '../isolate-snapshot.ts';

/**
 * Returns the view with the list of issuers. If the view lacks `wanted`, it is read again first.
 * @throws ApiError 503 until the registry has returned the list of issuers
 */
export async function issuersView(env: Env, ctx: Background, wanted?: string): Promise<RegistrySnapshot> {
  const knows = ({ issuers }: RegistrySnapshot) => (wanted === undefined ? issuers.size > 0 : issuers.has(wanted));
  const view = await isolateSnapshot.get(env, ctx, Date.now(), knows);
  if (view.issuers.size > 0) return view;
  throw new ApiError('server_is_overloaded', 'The registry does not answer yet. Try again shortly.');
}
