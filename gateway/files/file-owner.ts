import type { Context } from 'hono';
import { type Account, requireScope } from '../accounts/account.ts';
import type { Env } from '../env.ts';
import { authorizedModels } from '../registry/authorize-registry-read.ts';
import type { FileLimits } from '../settings/file-limits.ts';

/**
 * Returns the owner of files and batches: the project, so that its members share them; otherwise the user, otherwise
 * the key.
 */
export function ownerOf({ projectId, userId, keyId }: Pick<Account, 'projectId' | 'userId' | 'keyId'>): string {
  if (projectId !== undefined) return `project:${projectId}`;
  return userId === undefined ? `key:${keyId}` : `user:${userId}`;
}

export interface FileCaller {
  account: Account;
  owner: string;
  limits: FileLimits;
}

/** Authenticates a caller of the files or batches API. @throws ApiError 401, 403 */
export async function fileCaller(c: Context<{ Bindings: Env }>): Promise<FileCaller> {
  const { account, view } = await authorizedModels(c);
  requireScope(account, 'inference');
  return { account, owner: ownerOf(account), limits: view.settings.files };
}
