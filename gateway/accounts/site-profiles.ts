import { eq } from 'drizzle-orm';
import { type Sites, sitesSchema } from '../../shared/slurm/site-profile.ts';
import type { Env } from '../env.ts';
import { settings } from './account-tables.ts';
import { database, queryOrUnavailable } from './database.ts';

/** Reads the profiles of all clusters. They are not in the snapshot, because only `otela-agent sbatch` needs them. */
export async function readSites(env: Pick<Env, 'DB'>): Promise<Sites> {
  const [row] = await queryOrUnavailable(
    database(env).select({ value: settings.value }).from(settings).where(eq(settings.name, 'sites')),
  );
  return sitesSchema.safeParse(row?.value).data ?? {};
}
