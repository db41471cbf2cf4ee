/**
 * Secrets of functions, such as the token of a model hub: stored encrypted, and given only to nodes with a lease of a
 * function of the same owner that declares them.
 */
import { and, eq, inArray } from 'drizzle-orm';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import { decryptText, encryptText } from '../accounts/encrypt-text.ts';
import { installationSecret } from '../accounts/installation-secret.ts';
import type { Env } from '../env.ts';
import { functionSecrets } from '../files/file-tables.ts';

/** Maximum secrets of one owner. */
export const SECRETS_MAX = 64;

interface StoredSecret {
  owner: string;
  name: string;
  value: string;
}

/** @throws ApiError 409 if the owner has SECRETS_MAX others, 503 */
export async function storeSecret(env: Env, secret: StoredSecret, createdBy: string, nowMs: number): Promise<void> {
  const { owner, name, value } = secret;
  const known = await secretNames(env, owner);
  if (known.length >= SECRETS_MAX && !known.some((one) => one.name === name))
    throw new ApiError('conflict', `At most ${SECRETS_MAX} secrets can be stored: delete one.`);
  // Owner and name are encrypted too. Otherwise a row that was moved to another owner in the database would be given to
  // that owner's functions.
  const sealed = await encryptText(await installationSecret(env), 'secret', JSON.stringify([owner, name, value]));
  const row = { owner, name, sealed, createdBy, createdAt: nowMs };
  await queryOrUnavailable(
    database(env)
      .insert(functionSecrets)
      .values(row)
      .onConflictDoUpdate({
        target: [functionSecrets.owner, functionSecrets.name],
        set: { sealed, createdBy, createdAt: nowMs },
      }),
  );
}

/** The owner's secrets without their values. */
export function secretNames(env: Env, owner: string): Promise<{ name: string; createdAt: number }[]> {
  const { name, createdAt } = functionSecrets;
  return queryOrUnavailable(
    database(env)
      .select({ name, createdAt })
      .from(functionSecrets)
      .where(eq(functionSecrets.owner, owner))
      .orderBy(name),
  );
}

/** @returns false if there is none */
export async function deleteSecret(env: Env, owner: string, name: string): Promise<boolean> {
  const is = and(eq(functionSecrets.owner, owner), eq(functionSecrets.name, name));
  const gone = await queryOrUnavailable(
    database(env).delete(functionSecrets).where(is).returning({ name: functionSecrets.name }),
  );
  return gone.length > 0;
}

/** The values of these secrets, without secrets that are not stored or cannot be decrypted. @throws ApiError 503 */
export async function readSecrets(env: Env, owner: string, names: readonly string[]): Promise<Record<string, string>> {
  if (names.length === 0) return {};
  const rows = await queryOrUnavailable(
    database(env)
      .select()
      .from(functionSecrets)
      .where(and(eq(functionSecrets.owner, owner), inArray(functionSecrets.name, [...names]))),
  );
  const secret = await installationSecret(env);
  const found: Record<string, string> = {};
  for (const { name, sealed } of rows) {
    const opened = tryParseJson((await decryptText(secret, 'secret', sealed)) ?? '');
    if (!Array.isArray(opened) || opened[0] !== owner || opened[1] !== name) continue;
    if (typeof opened[2] === 'string') found[name] = opened[2];
  }
  return found;
}
