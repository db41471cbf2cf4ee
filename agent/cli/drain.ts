/** `otela-agent drain`: takes an agent out of routing, lets its requests finish and ends it. */
import { ask } from '../host/control-client.ts';
import { oneAgent, SESSION_FLAG } from './choose.ts';
import { EXIT_DONE } from './exit.ts';
import { parseFlags } from './flags.ts';
import type { Io } from './io.ts';
import type { Env } from './sources.ts';

export async function drainCommand(argv: readonly string[], env: Env, io: Io): Promise<number> {
  const { flags } = parseFlags(argv, [SESSION_FLAG, { flag: 'wait', kind: 'switch' }]);
  const { session, directory } = await oneAgent(flags, env);
  for await (const _accepted of ask(directory, { op: 'drain' }, 0)) {
    io.out(`${session} is draining`);
    if (!flags.has('wait')) return EXIT_DONE;
  }
  io.out(`${session} has left`);
  return EXIT_DONE;
}
