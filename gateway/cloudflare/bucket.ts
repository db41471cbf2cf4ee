/** The installation's R2 bucket, for uploaded files and the results of batches: found by its name, or made. */
import type { Wrangler } from './wrangler.ts';

/** True: it was made. Where data has a jurisdiction, so has the bucket: other jurisdictions do not see it. */
export async function findOrMakeBucket(
  wrangler: Wrangler,
  name: string,
  jurisdiction: string | undefined,
): Promise<boolean> {
  const where = jurisdiction === undefined ? [] : ['--jurisdiction', jurisdiction];
  const listed = await wrangler(['r2', 'bucket', 'list', ...where]);
  if (new RegExp(`^name:\\s+${name}$`, 'm').test(listed)) return false;
  await wrangler(['r2', 'bucket', 'create', name, ...where, '--no-update-config']);
  return true;
}
