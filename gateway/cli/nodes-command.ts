/** `otela-gateway nodes …`: the current state of each node. */
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { printableJson } from '../../shared/terminal/printable.ts';
import { type ApiTarget, askGateway, CONNECTION_FLAGS, refuseIgnoredFlags, targetAt } from './api-client.ts';
import { isStdoutClosed } from './closed-stdout.ts';
import { NODE_FIELDS, readNodes } from './read-nodes.ts';
import { Table } from './table.ts';

const nodeSchema = z.looseObject({
  ...NODE_FIELDS,
  in_flight: z.number().nullable(),
  load: z.object({ running: z.number(), waiting: z.number() }).nullable(),
  breaker: z.object({ state: z.string() }),
  models: z.array(z.object({ id: z.string() })),
  /** Absent: the gateway has an older version. */
  cause: z.string().nullable().optional(),
});

const eventSchema = z.object({
  id: z.number(),
  at: z.string(),
  session: z.string(),
  node: z.string().nullable(),
  provider: z.string(),
  cluster: z.string(),
  event: z.string(),
  reason: z.string().nullable(),
  cause: z.string().nullable().optional(),
});
const historySchema = z.object({ data: z.array(eventSchema), has_more: z.boolean() });
const drainedSchema = z.object({ running: z.number() });
/** Maximum events that are printed: one page of the API. */
const EVENTS = 1_000;

const STATES = ['JOIN', 'SERVING', 'DOWN', 'LEFT'];
const OPTIONS = {
  state: { value: STATES.join('|'), takes: STATES, help: 'list: only nodes in this state' },
  model: { value: 'M', help: 'list: only nodes that serve this model' },
  session: { value: 'S', help: 'history: only this session' },
  ...CONNECTION_FLAGS,
} as const satisfies Flags;

export const NODES_COMMAND: Command = {
  summary: 'list, inspect, drain or end nodes',
  examples: `list | show SESSION | history | drain SESSION | end SESSION

  otela-gateway nodes list --state SERVING
  otela-gateway nodes list --model Qwen/Qwen3-8B --json | jq -r .session
  otela-gateway nodes show SESSION                             hardware, job, load, last errors
  otela-gateway nodes history --session SESSION                joins and losses with their reasons, newest first
  otela-gateway nodes drain SESSION                            lets running requests finish, then ends the agent and the engine
  otela-gateway nodes end SESSION                              ends the session; the agent may join again`,
  verbs: ['list', 'show', 'history', 'drain', 'end'],
  flags: OPTIONS,
  run: nodesCommand,
};

async function nodesCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, OPTIONS, { words: 2 });
  const target = targetAt('/admin/nodes', values);
  const [verb, session] = words;
  const { state, model } = values;
  refuseIgnoredFlags(verb, { state: [state, 'list'], model: [model, 'list'], session: [values.session, 'history'] });
  if (verb === 'list' && session === undefined) {
    await listNodes(target, { state, model });
    return EXIT_DONE;
  }
  if (verb === 'history' && session === undefined) {
    await tellHistory(target, values.session);
    return EXIT_DONE;
  }
  if (session === undefined) throw wrong();
  const path = `/${encodeURIComponent(session)}`;
  switch (verb) {
    case 'show':
      console.log(printableJson(await askGateway(target, 'GET', path), target.json ? 0 : 2));
      return EXIT_DONE;
    case 'drain': {
      const drained = await askGateway(target, 'POST', `${path}/drain`);
      const { running } = drainedSchema.parse(drained);
      console.log(target.json ? JSON.stringify(drained) : `${session} is draining ${running} running requests`);
      return EXIT_DONE;
    }
    case 'end': {
      const ended = await askGateway(target, 'DELETE', path);
      console.log(target.json ? JSON.stringify(ended) : `${session}  ended`);
      return EXIT_DONE;
    }
    default:
      throw wrong();
  }
}

function wrong(): UsageError {
  return new UsageError('usage: otela-gateway nodes list | show SESSION | history | drain SESSION | end SESSION');
}

const HEAD = ['session', 'state', 'provider', 'cluster', 'requests', 'engine', 'breaker', 'models'];

async function listNodes(target: ApiTarget, wanted: Record<string, string | undefined>): Promise<void> {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(wanted)) if (value !== undefined) query.set(key, value);
  const table = new Table(HEAD);
  for await (const node of readNodes(target, query, nodeSchema)) {
    if (isStdoutClosed()) return;
    if (target.json) console.log(JSON.stringify(node));
    else table.add(rowOf(node));
  }
  if (!target.json) table.flush();
}

/** Prints events, newest first, as the API and the other lists do. */
async function tellHistory(target: ApiTarget, session: string | undefined): Promise<void> {
  const query = new URLSearchParams({ limit: String(EVENTS), ...(session === undefined ? {} : { session }) });
  const { data } = historySchema.parse(await askGateway(target, 'GET', `/history?${query}`));
  const table = new Table(['at', 'event', 'session', 'node', 'provider', 'cluster', 'reason']);
  for (const one of data) {
    const { at, event, session: of, node, provider, cluster, reason, cause } = one;
    const why = cause == null || cause === reason ? (reason ?? '') : `${cause}: ${reason ?? 'unknown'}`;
    if (target.json) console.log(JSON.stringify(one));
    else table.add([at, event, of, node ?? '-', provider, cluster, why]);
  }
  if (!target.json) table.flush();
}

function rowOf(node: z.infer<typeof nodeSchema>): string[] {
  const { session, state, suspected, provider, cluster, in_flight, load, breaker, models, cause } = node;
  const engine = load === null ? '-' : `${load.running} running, ${load.waiting} waiting`;
  const served = models.map(({ id }) => id).join(',') || '-';
  const aside = suspected ? 'suspected' : cause;
  const shown = aside == null ? state : `${state} (${aside})`;
  return [session, shown, provider, cluster, String(in_flight ?? '-'), engine, breaker.state, served];
}
