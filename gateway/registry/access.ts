import type { Context } from 'hono';
import { type Account, authenticate, presentedKey } from '../accounts/authenticate.ts';
import type { Env } from '../env.ts';
import { snapshots, type View } from './snapshot.ts';

export type ReadContext = Context<{ Bindings: Env }>;

/**
 * The current view, for a caller with a key, or for anybody where `open`; the account of whoever shows a key.
 * Rejects with ApiError 401 or 503, as `authenticate`.
 */
export async function readView(c: ReadContext, open: boolean): Promise<{ view: View; account: Account | undefined }> {
  const now = Date.now();
  snapshots.locate(c.req.raw);
  const view = await snapshots.get(c.env, c.executionCtx, now, () => true);
  if (open && presentedKey(c.req.raw) === undefined) return { view, account: undefined };
  return { view, account: await authenticate(c.env, c.req.raw, view.revoked, now) };
}
