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

/**
 * What is given, else what was given before.
 * @returns known: this machine has deployed it, or was going to
 */
export async function recalled(
  keys: string,
  given: { [name in keyof Said]: Said[name] | undefined },
): Promise<{ known: boolean; said: Said }> {
  const text = await readFile(fileIn(keys), 'utf8').catch((error: unknown) => {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  });
  const now = Object.entries(given).filter(([, value]) => value !== undefined);
  const before = schema.parse(JSON.parse(text ?? '{}'));
  return { known: text !== undefined, said: schema.parse({ ...before, ...Object.fromEntries(now) }) };
}

/** For the next time. */
export async function remember(keys: string, said: Said): Promise<void> {
  await mkdir(keys, { recursive: true, mode: 0o700 });
  await writeFile(fileIn(keys), `${JSON.stringify(said, null, 1)}\n`, { mode: 0o600 });
}

const fileIn = (keys: string) => join(keys, 'installation.json');
