/** The installation's secret: random, created once, stored in D1 and never shown. */
import { eq } from 'drizzle-orm';
import type { Env } from '../env.ts';
import { settings } from './account-tables.ts';
import { database, queryOrUnavailable } from './database.ts';
import { newInstallationSecret } from './secrets.ts';

const NAME = 'installation_secret';

/** The secret, once this isolate has read it. It never changes. */
let known: string | undefined;

/** @throws ApiError 503 if D1 cannot be reached */
export async function installationSecret(env: Pick<Env, 'DB'>): Promise<string> {
  if (known !== undefined) return known;
  const db = database(env);
  const row = { name: NAME, value: newInstallationSecret(), updatedAt: Date.now() };
  const [, [stored]] = await queryOrUnavailable(
    db.batch([
      db.insert(settings).values(row).onConflictDoNothing(),
      db.select().from(settings).where(eq(settings.name, NAME)),
    ]),
  );
  if (typeof stored?.value !== 'string') throw new Error('the table `settings` has no installation secret');
  known = stored.value;
  return known;
}

/** Returns the secret if this isolate has already read it, otherwise undefined. For callers that cannot wait. */
export function knownInstallationSecret(): string | undefined {
  return known;
}
