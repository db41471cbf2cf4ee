/** `otela-gateway nodes …`: what runs at each node now. */
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { ask, CONNECTION, type Door } from './client.ts';

export const NODES_USAGE = `otela-gateway nodes list [--state JOIN|SERVING|DOWN|LEFT] [--model M] | show SESSION | history [--session S] | end SESSION`;

const nodeSchema = z.looseObject({
  session: z.string(),
  state: z.string(),
  suspected: z.boolean(),
  provider: z.string(),
  cluster: z.string(),
  in_flight: z.number().nullable(),
  load: z.object({ running: z.number(), waiting: z.number() }).nullable(),
  breaker: z.object({ state: z.string() }),
  models: z.array(z.object({ id: z.string() })),
});
const pageSchema = z.object({ data: z.array(nodeSchema), has_more: z.boolean() });

const eventSchema = z.object({
  id: z.number(),
  at: z.string(),
  session: z.string(),
  node: z.string().nullable(),
  provider: z.string(),
  cluster: z.string(),
  event: z.string(),
  reason: z.string().nullable(),
});
const historySchema = z.object({ data: z.array(eventSchema), has_more: z.boolean() });
/** A page: who wants more asks the API. */
const EVENTS = 1_000;

const OPTIONS = {
  ...CONNECTION,
  state: { type: 'string' },
  model: { type: 'string' },
  session: { type: 'string' },
} as const;

export async function nodesCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({ args, options: OPTIONS, allowPositionals: true });
  const door: Door = { path: '/admin/nodes', url: values.url, keyFile: values['key-file'], json: values.json };
  const [verb, session, ...rest] = positionals;
  if (verb === 'list' && session === undefined) {
    await listNodes(door, { state: values.state, model: values.model });
    return 0;
  }
  if (verb === 'history' && session === undefined) {
    await tellHistory(door, values.session);
    return 0;
  }
  if (session === undefined || rest.length > 0) return wrong();
  const path = `/${encodeURIComponent(session)}`;
  switch (verb) {
    case 'show':
      console.log(JSON.stringify(await ask(door, 'GET', path), null, 2));
      return 0;
    case 'end':
      await ask(door, 'DELETE', path);
      return 0;
    default:
      return wrong();
  }
}

function wrong(): number {
  console.error(NODES_USAGE);
  return 2;
}

async function listNodes(door: Door, wanted: Record<string, string | undefined>): Promise<void> {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(wanted)) if (value !== undefined) query.set(key, value);
  for (let more = true; more; ) {
    const page = pageSchema.parse(await ask(door, 'GET', `?${query}`));
    for (const node of page.data) say(door, node);
    const last = page.data.at(-1);
    more = page.has_more && last !== undefined;
    if (last !== undefined) query.set('after', last.session);
  }
}

/** The newest last, as a terminal shows it. */
async function tellHistory(door: Door, session: string | undefined): Promise<void> {
  const query = new URLSearchParams({ limit: String(EVENTS), ...(session === undefined ? {} : { session }) });
  const { data } = historySchema.parse(await ask(door, 'GET', `/history?${query}`));
  for (const one of data.toReversed()) {
    const { at, event, session: of, node, provider, cluster, reason } = one;
    if (door.json) console.log(JSON.stringify(one));
    else console.log([at, event.padEnd(9), of, node ?? '-', provider, cluster, reason ?? ''].join('  ').trimEnd());
  }
}

function say({ json }: Door, node: z.infer<typeof nodeSchema>): void {
  if (json) return console.log(JSON.stringify(node));
  const { session, state, suspected, provider, cluster, in_flight, load, breaker, models } = node;
  const engine = load === null ? '-' : `${load.running} running, ${load.waiting} waiting`;
  const served = models.map(({ id }) => id).join(',') || '-';
  const standing = suspected ? `${state} (suspected)` : state;
  console.log([session, standing, provider, cluster, in_flight ?? '-', engine, breaker.state, served].join('  '));
}
