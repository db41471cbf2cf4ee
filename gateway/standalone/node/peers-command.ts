/** `otela-gateway peers …`: the issuers whose nodes this gateway takes in beside its own. */
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { ask, CONNECTION, type Door } from './client.ts';

export const PEERS_USAGE = `otela-gateway peers add NAME KEY URL | peers list | peers remove NAME
    KEY: the other gateway's root_key, as its \`otela-gateway issuer show\` prints it`;

const peerSchema = z.object({
  name: z.string(),
  root: z.string(),
  url: z.string().nullable(),
  created_at: z.string(),
});
const listSchema = z.object({ data: z.array(peerSchema) });

export async function peersCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({ args, options: CONNECTION, allowPositionals: true });
  const door: Door = { path: '/admin/peers', url: values.url, keyFile: values['key-file'], json: values.json };
  const [verb, name, root, url, ...rest] = positionals;
  if (verb === 'list' && name === undefined) {
    for (const peer of listSchema.parse(await ask(door, 'GET', '')).data) say(door, peer);
    return 0;
  }
  if (verb === 'add' && name !== undefined && root !== undefined && url !== undefined && rest.length === 0) {
    say(door, peerSchema.parse(await ask(door, 'POST', '', { name, root, url })));
    return 0;
  }
  if (verb === 'remove' && name !== undefined && root === undefined) {
    await ask(door, 'DELETE', `/${encodeURIComponent(name)}`);
    return 0;
  }
  console.error(PEERS_USAGE);
  return 2;
}

function say({ json }: Door, peer: z.infer<typeof peerSchema>): void {
  const { name, root, url, created_at } = peer;
  console.log(json ? JSON.stringify(peer) : [name, root, url ?? '-', created_at].join('  '));
}
