/** `otela-agent logs`: the last output of the engine, byte for byte, and with --follow what comes. */
import { ask } from '../host/control-client.ts';
import { oneAgent, SESSION_FLAG } from './choose.ts';
import { EXIT_DONE } from './exit.ts';
import { type FlagSpec, parseFlags } from './flags.ts';
import type { Io } from './io.ts';
import type { Env } from './sources.ts';

/** Without --follow the agent answers and closes. */
const SILENCE_MS = 5000;

export const FLAGS: readonly FlagSpec[] = [
  SESSION_FLAG,
  { flag: 'follow', kind: 'switch', short: 'f', help: 'and what comes' },
];

export async function logsCommand(argv: readonly string[], env: Env, io: Io): Promise<number> {
  const { flags } = parseFlags(argv, FLAGS);
  const { directory } = await oneAgent(flags, env);
  const follow = flags.has('follow');
  let readerGone = false;
  io.stdout.once('error', () => {
    readerGone = true;
  });
  for await (const answer of ask(directory, { op: 'logs', follow }, follow ? 0 : SILENCE_MS)) {
    if (readerGone) break;
    if ('data' in answer) io.stdout.write(Buffer.from(answer.data, 'base64'));
  }
  return EXIT_DONE;
}
