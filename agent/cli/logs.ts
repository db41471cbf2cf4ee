/** `otela-agent logs`: the last output of the engine, byte for byte or as JSON line by line, and with --follow what comes. */

import { EXIT_DONE } from '../config/exit.ts';
import { type FlagSpec, onlyFlags } from '../config/flags.ts';
import type { Env } from '../config/sources.ts';
import { LineReader } from '../engine/lines.ts';
import { ask } from '../host/control-client.ts';
import { JSON_FLAG, oneAgent, SESSION_FLAG } from './choose.ts';
import type { Io } from './io.ts';

/** Without --follow the agent answers and closes. */
const SILENCE_MS = 5000;

export const FLAGS: readonly FlagSpec[] = [
  SESSION_FLAG,
  { flag: 'follow', kind: 'switch', short: 'f', help: 'and what comes' },
  JSON_FLAG,
];

export async function logsCommand(argv: readonly string[], env: Env, io: Io): Promise<number> {
  const flags = onlyFlags(argv, FLAGS);
  const { session, directory } = await oneAgent(flags, env);
  const follow = flags.has('follow');
  const lines = flags.has('json') ? new LineReader((line) => io.out(JSON.stringify({ session, line }))) : undefined;
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
