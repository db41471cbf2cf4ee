/** An agent as a process: `node agent/cli/main.ts start …`. */
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Managed, type SpawnOptions, temporaryDirectory } from './processes.ts';
import { AGENT_MAIN, NODE, ROOT } from './where.ts';

export const ENGINE_MAIN = join(ROOT, 'test/support/engine.ts');

export interface AgentOptions extends Omit<SpawnOptions, 'label'> {
  gateways: string[];
  token: string;
  /** URL of a running engine. */
  engineUrl?: string;
  /** Instead of `engineUrl`: the command that the agent runs as its engine. */
  command?: string[];
  /** Additional flags of `start`. */
  args?: string[];
  /** File of the agent's program; default: the one in this clone. */
  main?: string;
  /** Instead of `main`: a program that needs no Node. */
  executable?: string;
  /** Prepended to the command, e.g. `ip netns exec c1h1`. */
  prefix?: string[];
}

/** Starts the agent. To wait until it has joined, use `gateway.serving(…)`. */
export async function startAgent(options: AgentOptions): Promise<Managed> {
  const state = await temporaryDirectory('otela-agent');
  const tokenFile = join(state, 'token');
  await writeFile(tokenFile, `${options.token}\n`, { mode: 0o600 });
  if (options.uid !== undefined) {
    await chmod(state, 0o777);
    await chmod(tokenFile, 0o644);
  }
  const flags = options.gateways.flatMap((url) => ['--gateway', url]);
  if (options.engineUrl !== undefined) flags.push('--engine-url', options.engineUrl);
  const command = options.command === undefined ? [] : ['--', ...options.command];
  const { uid, gid, cwd } = options;
  return new Managed(
    [
      ...(options.prefix ?? []),
      ...(options.executable === undefined ? [NODE, options.main ?? AGENT_MAIN] : [options.executable]),
      'start',
      ...flags,
      '--token-file',
      tokenFile,
      ...(options.args ?? []),
      ...command,
    ],
    {
      label: 'agent',
      cwd: cwd ?? ROOT,
      // Tests listen on loopback; inside a network namespace, on all addresses.
      env: { XDG_RUNTIME_DIR: state, ...(options.prefix ? {} : { OTELA_MESH: '127.0.0.1' }), ...options.env },
      ...(uid === undefined ? {} : { uid }),
      ...(gid === undefined ? {} : { gid }),
    },
  );
}

/** The command line of the mock engine. */
export function engineCommand(port: number, ...more: string[]): string[] {
  return [NODE, ENGINE_MAIN, '--port', String(port), ...more];
}
