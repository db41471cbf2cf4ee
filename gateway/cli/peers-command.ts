/** `otela-gateway peers …`: peer institutions, whose nodes this gateway accepts in addition to its own. */
import * as z from 'zod';
import { type Command, EXIT_DONE, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { type ApiTarget, askGateway, CONNECTION_FLAGS, targetAt, wasDeleted } from './api-client.ts';
import { Table } from './table.ts';

const peerSchema = z.object({
  name: z.string(),
  root: z.string(),
  url: z.string().nullable(),
  created_at: z.string(),
});
const listSchema = z.object({ data: z.array(peerSchema) });
export const PEERS_COMMAND: Command = {
  summary: 'manage peer institutions, so that their nodes may serve at this gateway',
  examples: `add NAME KEY URL | list | remove NAME

  otela-gateway peers add psi 3q2-7w… https://llm.psi.example  KEY: root_key from their \`otela-gateway issuer show\`; if it begins with -: peers add -- psi KEY URL
  otela-gateway peers list
  otela-gateway peers remove psi`,
  verbs: ['add', 'list', 'remove'],
  flags: CONNECTION_FLAGS,
  run: peersCommand,
};

async function peersCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, CONNECTION_FLAGS, { words: 4 });
  const target = targetAt('/admin/peers', values);
  const [verb, name, root, url] = words;
  if (verb === 'list' && name === undefined) {
    const { data } = listSchema.parse(await askGateway(target, 'GET', ''));
    const table = new Table(['name', 'root key', 'url', 'created']);
    for (const peer of data) {
      if (target.json) print(target, peer);
      else table.add(rowOf(peer));
    }
    if (!target.json) table.flush();
    return EXIT_DONE;
  }
  if (verb === 'add' && name !== undefined && root !== undefined && url !== undefined) {
    print(target, peerSchema.parse(await askGateway(target, 'POST', '', { name, root, url })));
    return EXIT_DONE;
  }
  if (verb === 'remove' && name !== undefined && root === undefined) {
    const gone = await askGateway(target, 'DELETE', `/${encodeURIComponent(name)}`);
    console.log(
      target.json
        ? JSON.stringify(gone)
        : wasDeleted(gone)
          ? `${name}  removed`
          : `${name} is not a peer institution of this gateway`,
    );
    return EXIT_DONE;
  }
  throw new UsageError('usage: otela-gateway peers add NAME KEY URL | list | remove NAME');
}

function print({ json }: ApiTarget, peer: z.infer<typeof peerSchema>): void {
  console.log(json ? JSON.stringify(peer) : rowOf(peer).join('  '));
}

function rowOf({ name, root, url, created_at }: z.infer<typeof peerSchema>): string[] {
  return [name, root, url ?? '-', created_at];
}
