/** `otela-gateway gateways …`: the gateways of one institution: the primary and its followers. */
import * as z from 'zod';
import { type Command, EXIT_DONE, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { askGateway, CONNECTION_FLAGS, targetAt, wasDeleted } from './api-client.ts';

const followerSchema = z.object({
  key: z.string(),
  url: z.string(),
  version: z.string(),
  seen_at: z.string(),
  connected: z.boolean(),
  waiting_records: z.number(),
});
const statusSchema = z.object({
  role: z.string(),
  epoch: z.number().optional(),
  followers: z.array(followerSchema).optional(),
  first: z.string().optional(),
  connected: z.boolean().optional(),
  synced_at: z.string().nullable().optional(),
  waiting_records: z.number().optional(),
  error: z.string().optional(),
});

export const GATEWAYS_COMMAND: Command = {
  summary: 'show the primary and its followers, or remove a follower',
  examples: `list | remove KEY

  otela-gateway gateways list                  role, epoch, and each follower: whether it is connected, and its waiting records
  otela-gateway gateways remove KEY            removes a follower permanently; the primary gets its share of the limits back

To set up a follower: docs/gateways.md.`,
  verbs: ['list', 'remove'],
  flags: CONNECTION_FLAGS,
  run: gatewaysCommand,
};

async function gatewaysCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, CONNECTION_FLAGS, { words: 2 });
  const target = targetAt('/admin/gateways', values);
  const [verb, key] = words;
  if (verb === 'list' && key === undefined) {
    const status = statusSchema.parse(await askGateway(target, 'GET', ''));
    if (target.json) console.log(JSON.stringify(status));
    else for (const line of statusLines(status)) console.log(line);
    return EXIT_DONE;
  }
  if (verb === 'remove' && key !== undefined) {
    const gone = await askGateway(target, 'DELETE', `/${encodeURIComponent(key)}`);
    console.log(target.json ? JSON.stringify(gone) : wasDeleted(gone) ? `${key}  removed` : `${key} is not a follower`);
    return EXIT_DONE;
  }
  throw new UsageError('usage: otela-gateway gateways list | remove KEY');
}

function statusLines(status: z.infer<typeof statusSchema>): string[] {
  const { role, epoch = 0, followers = [], first, connected, synced_at, waiting_records, error } = status;
  const here = `${role === 'first' ? 'primary' : role}  epoch ${epoch}`;
  if (first === undefined)
    return [
      here,
      ...followers.map((one) =>
        [
          one.key,
          one.url,
          one.version,
          one.connected ? 'connected' : `disconnected since ${one.seen_at}`,
          `${one.waiting_records} waiting records`,
        ].join('  '),
      ),
    ];
  const state =
    connected === true ? 'connected' : `disconnected: ${error ?? 'no answer yet'}; last copy ${synced_at ?? 'never'}`;
  return [`${here}  of ${first}  ${state}  ${waiting_records ?? 0} waiting records`];
}
