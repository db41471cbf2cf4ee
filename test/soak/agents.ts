/**
 * `node test/soak/agents.ts COUNT FLAGS…`: COUNT agents in one process, for soak tests with hundreds of agents. Each
 * is a whole agent with its own state directory. SIGTERM drains all of them; SIGKILL takes them away as a rack that
 * loses its power.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { makeAgentIo } from '../../agent/cli/agent-io.ts';
import { START_COMMAND } from '../../agent/cli/start.ts';

const [count = '1', ...flags] = process.argv.slice(2);
const { XDG_RUNTIME_DIR: base = '' } = process.env;
// Each agent listens for signals and faults.
process.setMaxListeners(0);

const agents = Array.from({ length: Number(count) }, (_, i) => {
  const directory = join(base, String(i));
  mkdirSync(directory, { mode: 0o700 });
  const env = { ...process.env, XDG_RUNTIME_DIR: directory };
  return START_COMMAND.run(flags, { env, io: makeAgentIo(process.stdout, process.stderr, env), outside: {} });
});
process.exitCode = Math.max(...(await Promise.all(agents)));
