import type { Context } from 'hono';
import { type Account, requireScope } from '../accounts/account.ts';
import { authenticate, presentedKey } from '../accounts/authenticate.ts';
import { recordLastUse } from '../accounts/last-used.ts';
import type { Env } from '../env.ts';
import { isolateSnapshot, type RegistrySnapshot } from './isolate-snapshot.ts';

export type ReadContext = Context<{ Bindings: Env }>;

/**
 * Returns the current view and the account of the caller's key. If `open`, callers without a key get the view too, and
 * their account is undefined. Rejects with ApiError 401 or 503, like `authenticate`, and 403 if the key lacks the
 * scope.
 */
export async function authorizedRegistry(
  c: ReadContext,
  open: boolean,
): Promise<{ view: RegistrySnapshot; account: Account | undefined }> {
  const view = await current(c);
  if (open && presentedKey(c.req.raw) === undefined) return { view, account: undefined };
  const account = await accountOf(c, view);
  requireScope(account, 'registry');
  return { view, account };
}

/**
 * Like `authorizedRegistry`, but for the list of models: the request always needs a key, with the scope `inference`.
 */
export async function authorizedModels(c: ReadContext): Promise<{ view: RegistrySnapshot; account: Account }> {
  const view = await current(c);
  const account = await accountOf(c, view);
  requireScope(account, 'inference');
  return { view, account };
}

async function accountOf(c: ReadContext, { settings }: RegistrySnapshot): Promise<Account> {
  const now = Date.now();
  const account = await authenticate(c.env, c.req.raw, settings, now);
  recordLastUse(account, c.env, c.executionCtx, now);
  return account;
}

async function current(c: ReadContext): Promise<RegistrySnapshot> {
  isolateSnapshot.locate(c.req.raw);
  return isolateSnapshot.get(c.env, c.executionCtx, Date.now(), () => true);
}
