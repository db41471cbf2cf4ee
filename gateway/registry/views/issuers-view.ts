import { ApiError } from '../../../shared/openai/errors.ts';
import type { Env } from '../../env.ts';
import type { Background } from '../../object-context.ts';
import { snapshots, type View } from '../snapshot.ts';

/**
 * The view with the list of issuers. A view that lacks `wanted` is refreshed first.
 * @throws ApiError 503 while the registry has not yet told which issuers are listed.
 */
export async function issuersView(env: Env, ctx: Background, wanted?: string): Promise<View> {
  const knows = ({ issuers }: View) => (wanted === undefined ? issuers.size > 0 : issuers.has(wanted));
  const view = await snapshots.get(env, ctx, Date.now(), knows);
  if (view.issuers.size > 0) return view;
  throw new ApiError('server_is_overloaded', 'The registry does not answer yet. Try again shortly.');
}
