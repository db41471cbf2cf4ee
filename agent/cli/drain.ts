/** `otela-agent drain`: takes an agent out of routing, lets its requests finish and ends it. */

import { type Command, EXIT_DONE, type Flags, JSON_FLAG, parseLine } from '../../shared/command-line/index.ts';
import { ask } from '../host/control-client.ts';
import type { CommandContext } from './command-context.ts';
import { SESSION_FLAG, SESSION_HINT, selectOneAgent } from './select-agents.ts';

const FLAGS = {
  ...SESSION_FLAG,
  wait: { help: 'return only after the agent has exited' },
  ...JSON_FLAG,
} as const satisfies Flags;

export const DRAIN_COMMAND: Command<CommandContext> = {
  summary: 'let running requests finish, then end the agent',
  examples: `[--session PREFIX] [--wait] [--json]

The agent takes no new requests, lets running requests finish, ends the engine and exits with 0. With --wait, the command returns after that.
  otela-agent drain --session 6rcohdmy --wait`,
  flags: FLAGS,
  run: drainCommand,
};

async function drainCommand(argv: readonly string[], { env, io }: CommandContext): Promise<number> {
  const { values } = parseLine(argv, FLAGS, SESSION_HINT);
  const { session, directory } = await selectOneAgent(values.session, env);
  for await (const _accepted of ask(directory, { op: 'drain' }, 0)) {
    if (!values.json) io.out(`${session} is draining`);
    else if (!values.wait) io.out(JSON.stringify({ session, state: 'draining' }));
    if (!values.wait) return EXIT_DONE;
  }
  io.out(values.json ? JSON.stringify({ session, state: 'left' }) : `${session} has left`);
  return EXIT_DONE;
}
