/** `otela-gateway logs NODE`: the current output of a node's engine or agent, or the last output of an ended node. */
import { setTimeout as sleep } from 'node:timers/promises';
import * as z from 'zod';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { printable } from '../../shared/terminal/printable.ts';
import {
  type ApiTarget,
  askGateway,
  ClientError,
  CONNECTION_FLAGS,
  download,
  outlasting,
  targetAt,
} from './api-client.ts';
import { appendedText } from './appended-text.ts';
import { isStdoutClosed } from './closed-stdout.ts';
import { NODE_FIELDS, readNodes } from './read-nodes.ts';

const telemetrySchema = z.object({
  log: z.string(),
  agent_log: z.string().optional(),
  withheld: z.enum(['forbidden', 'sealed']).optional(),
});
type Telemetry = z.infer<typeof telemetrySchema>;
const nodeSchema = z.looseObject({ ...NODE_FIELDS, job: z.looseObject({ node: z.string().optional() }).optional() });

const FLAGS = {
  follow: { short: 'f', help: 'also print new output as it arrives, until the node has ended' },
  agent: { help: 'print the log of the agent, not of the engine' },
  ...CONNECTION_FLAGS,
} as const satisfies Flags;

export const NODE_LOGS_COMMAND: Command = {
  summary: "print the output of a node's engine or agent",
  examples: `NODE [--follow] [--agent]

  otela-gateway logs iydk4q…                                   a session, its first characters, or the name of a machine
  otela-gateway logs nid001234 --follow
For a running node: the last 32 KiB of the engine, or the last 16 KiB of the agent. For an ended node: the last 256 KiB of both, kept for 7 days.`,
  flags: FLAGS,
  run: logsCommand,
};

const WITHHELD = {
  forbidden: 'its provider does not allow it (--no-remote-logs)',
  sealed: 'it decrypted sealed requests, and its log may quote them',
};
/** Interval between requests to an agent. The node's page in the dashboard uses the same interval. */
const EVERY_MS = 2_000;

async function logsCommand(args: readonly string[]): Promise<number> {
  const { values, words } = parseLine(args, FLAGS, { words: 1 });
  const [name] = words;
  if (name === undefined) throw new UsageError('usage: otela-gateway logs NODE [--follow] [--agent]');
  const target = targetAt('/admin/nodes', values);
  const { session, state } = await nodeOf(target, name);
  if (state === 'LEFT') {
    print(target, session, await storedLog(target, session));
    return EXIT_DONE;
  }
  for (let before = ''; !isStdoutClosed(); await sleep(EVERY_MS)) {
    const output = await (values.follow
      ? outlasting(() => telemetry(target, session), EVERY_MS)
      : telemetry(target, session));
    if (output === undefined) {
      print(target, session, appendedText(before, await storedLog(target, session)));
      return EXIT_DONE;
    }
    if (output.withheld !== undefined)
      throw new ClientError(`the log of ${session} is not available: ${WITHHELD[output.withheld]}`);
    const text = values.agent ? (output.agent_log ?? '') : output.log;
    print(target, session, appendedText(before, text));
    if (!values.follow) return EXIT_DONE;
    before = text === '' ? before : text;
  }
  return EXIT_DONE;
}

/**
 * Finds a node by its session, by the beginning of its session, or by the machine's name. Nodes that have not left take
 * precedence.
 * @throws ClientError if no node matches, or several
 */
async function nodeOf(target: ApiTarget, name: string): Promise<z.infer<typeof nodeSchema>> {
  const found: z.infer<typeof nodeSchema>[] = [];
  for await (const node of readNodes(target, new URLSearchParams({ limit: '1000' }), nodeSchema))
    if (node.session.startsWith(name) || node.job?.node === name) found.push(node);
  const live = found.filter(({ state }) => state !== 'LEFT');
  const [one, ...others] = live.length > 0 ? live : found;
  if (one === undefined)
    throw new ClientError(`there is no node ${name}; otela-gateway nodes list shows all known nodes`);
  if (others.length > 0)
    throw new ClientError(
      `${name} matches several nodes: ${[one, ...others.slice(0, 9)].map(({ session }) => session).join(', ')}`,
    );
  return one;
}

/** Reads the output from the agent; undefined: the agent cannot be reached any more. */
async function telemetry(target: ApiTarget, session: string): Promise<Telemetry | undefined> {
  try {
    return telemetrySchema.parse(await askGateway(target, 'GET', `/${encodeURIComponent(session)}/telemetry`));
  } catch (error) {
    const { state } = await nodeOf(target, session);
    if (state === 'LEFT' || state === 'DOWN') return undefined;
    throw error;
  }
}

const LAST_LOG_TRIES = 5;

/**
 * Reads the stored output of an ended node. If it is missing, the request is repeated for some seconds, because the
 * session may be about to store it.
 */
async function storedLog(target: ApiTarget, session: string): Promise<string> {
  for (let tries = LAST_LOG_TRIES; ; tries--) {
    try {
      let text = '';
      const decoder = new TextDecoder();
      for await (const chunk of await download(target, `/${encodeURIComponent(session)}/logs`))
        text += decoder.decode(chunk, { stream: true });
      return text;
    } catch (error) {
      if (tries <= 1 || (await nodeOf(target, session)).state === 'LEFT') throw error;
      await sleep(EVERY_MS);
    }
  }
}

/** Prints lines of an engine. Control characters are replaced, so that the engine cannot control the terminal. */
function print({ json }: ApiTarget, session: string, text: string): void {
  if (text === '') return;
  for (const line of text.replace(/\n$/, '').split('\n'))
    console.log(json ? JSON.stringify({ session, line }) : printable(line));
}
