/**
 * `otela-agent logs`: the last output of the engine, as raw bytes or as JSON lines, and with --follow the later output.
 */

import { type Command, EXIT_DONE, type Flags, JSON_FLAG, parseLine } from '../../shared/command-line/index.ts';
import { LineReader } from '../engine/line-reader.ts';
import { ask } from '../host/control-client.ts';
import type { CommandContext } from './command-context.ts';
import { SESSION_FLAG, SESSION_HINT, selectOneAgent } from './select-agents.ts';

/** Time limit for the agent's answer without --follow. The agent then answers immediately and closes the connection. */
const SILENCE_MS = 5000;

const FLAGS = {
  ...SESSION_FLAG,
  follow: { short: 'f', help: 'also print new output as it arrives' },
  ...JSON_FLAG,
} as const satisfies Flags;

export const AGENT_LOGS_COMMAND: Command<CommandContext> = {
  summary: 'print the last output of the engine',
  examples: `[--session PREFIX] [--follow] [--json]

Prints the last 256 KiB of the engine's output unchanged; with --follow, also new output. With --json, each line is {"session", "line"}, cut at 4 KiB.
  otela-agent logs | tail -50`,
  flags: FLAGS,
  run: logsCommand,
};

async function logsCommand(argv: readonly string[], { env, io }: CommandContext): Promise<number> {
  const { values } = parseLine(argv, FLAGS, SESSION_HINT);
  const { session, directory } = await selectOneAgent(values.session, env);
  const { follow } = values;
  const lines = values.json ? new LineReader((line) => io.out(JSON.stringify({ session, line }))) : undefined;
  let readerGone = false;
  io.stdout.once('error', () => {
    readerGone = true;
  });
  for await (const answer of ask(directory, { op: 'logs', follow }, follow ? 0 : SILENCE_MS)) {
    if (readerGone) break;
    if (!('data' in answer)) continue;
    const piece = Buffer.from(answer.data, 'base64');
    if (lines === undefined) io.stdout.write(piece);
    else lines.push(piece);
  }
  lines?.end();
  return EXIT_DONE;
}
