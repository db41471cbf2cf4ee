/** The installation's D1: found by its name, or made. */
import * as z from 'zod';
import { jsonOf, type Wrangler } from './wrangler.ts';

const listSchema = z.array(z.object({ uuid: z.string(), name: z.string() }));

/** Its id; `before` is called before it is made and may throw. Two runs at once would make one each under the same name, which Cloudflare refuses. */
export async function findOrMakeDatabase(
  wrangler: Wrangler,
  name: string,
  jurisdiction: string | undefined,
  before: () => Promise<void>,
): Promise<{ id: string; made: boolean }> {
  const found = await find(wrangler, name);
  if (found !== undefined) return { id: found, made: false };
  await before();
  await wrangler(['d1', 'create', name, ...(jurisdiction === undefined ? [] : ['--jurisdiction', jurisdiction])]);
  const id = await find(wrangler, name);
  if (id === undefined) throw new Error(`D1 "${name}" was made and is not in the list; run this again in a minute`);
  return { id, made: true };
}

async function find(wrangler: Wrangler, name: string): Promise<string | undefined> {
  const all = listSchema.parse(jsonOf(await wrangler(['d1', 'list', '--json'])));
  return all.find((database) => database.name === name)?.uuid;
}
