/** `otela-agent drain`: takes an agent out of routing, lets its requests finish and ends it. */

import { EXIT_DONE } from '../config/exit.ts';
import { type FlagSpec, onlyFlags } from '../config/flags.ts';
import type { Env } from '../config/sources.ts';
import { ask } from '../host/control-client.ts';
import { JSON_FLAG, oneAgent, SESSION_FLAG } from './choose.ts';
import type { Io } from './io.ts';

export const FLAGS: readonly FlagSpec[] = [
  SESSION_FLAG,
  { flag: 'wait', kind: 'switch', help: 'return when it has left' },
  JSON_FLAG,
];

export async function drainCommand(argv: readonly string[], env: Env, io: Io): Promise<number> {
  const flags = onlyFlags(argv, FLAGS);
  const { session, directory } = await oneAgent(flags, env);
  for await (const _accepted of ask(directory, { op: 'drain' }, 0)) {
    if (!flags.has('json')) io.out(`${session} is draining`);
    else if (!flags.has('wait')) io.out(JSON.stringify({ session, state: 'draining' }));
    if (!flags.has('wait')) return EXIT_DONE;
  }
  io.out(flags.has('json') ? JSON.stringify({ session, state: 'left' }) : `${session} has left`);
  return EXIT_DONE;
}
