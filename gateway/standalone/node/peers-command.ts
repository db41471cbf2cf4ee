/** `otela-gateway peers …`: the issuers whose nodes this gateway takes in beside its own. */
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { ask, CONNECTION, type Door, list } from './client.ts';

export const PEERS_USAGE = `otela-gateway peers add NAME KEY URL | peers list | peers remove NAME
    KEY: the other gateway's root_key, as its \`otela-gateway issuer show\` prints it`;

const peerSchema = z.object({
  name: z.string(),
  /** The root key, base64url. */
  key: z.string(),
  issuer: z.string(),
  url: z.string(),
  created_at: z.string(),
});

export async function peersCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({ args, options: CONNECTION, allowPositionals: true });
  const door: Door = { path: '/admin/peers', url: values.url, keyFile: values['key-file'], json: values.json };
  const [verb, name, key, url, ...rest] = positionals;
  if (verb === 'list' && name === undefined) return list(door, { row });
  if (verb === 'add' && name !== undefined && key !== undefined && url !== undefined && rest.length === 0)
    return said(door, await ask(door, 'POST', '', { name, key, url }));
  if (verb === 'remove' && name !== undefined && key === undefined)
    return said(door, await ask(door, 'DELETE', `/${encodeURIComponent(name)}`));
  console.error(PEERS_USAGE);
  return 2;
}

function said(door: Door, answer: unknown): number {
  console.log(door.json ? JSON.stringify(answer) : row(answer).join('  '));
  return 0;
}

function row(value: unknown): string[] {
  const { name, issuer, key, url, created_at } = peerSchema.parse(value);
  return [name, issuer, key, url, created_at];
}
