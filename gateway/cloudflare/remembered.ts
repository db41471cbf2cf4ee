/** What was said of an installation when it was made holds for its upgrades: `installation.json` beside its keys. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';

const schema = z.object({
  production: z.boolean().optional(),
  database: z.string().optional(),
  jurisdiction: z.string().optional(),
  release_keys: z.string().optional(),
  url: z.string().optional(),
});
type Said = z.infer<typeof schema>;

/** What is given, else what was given before; stored for the next time. */
export async function remembered(keys: string, given: { [name in keyof Said]: Said[name] | undefined }): Promise<Said> {
  const file = join(keys, 'installation.json');
  const text = await readFile(file, 'utf8').catch(() => '{}');
  const now = Object.entries(given).filter(([, value]) => value !== undefined);
  const all = schema.parse({ ...schema.parse(JSON.parse(text)), ...Object.fromEntries(now) });
  await mkdir(keys, { recursive: true, mode: 0o700 });
  await writeFile(file, `${JSON.stringify(all, null, 1)}\n`, { mode: 0o600 });
  return all;
}
