/** `otela-agent update`: installs the agent of the gateway's release. */
import { isSea } from 'node:sea';
import {
  type Command,
  EXIT_DONE,
  type Flags,
  JSON_FLAG,
  parseLine,
  UsageError,
} from '../../shared/command-line/index.ts';
import { EXIT_REFUSED } from '../config/exit-codes.ts';
import { GATEWAY_SETTINGS, gatewayUrl } from '../config/gateways-config.ts';
import { readSettingValues } from '../config/setting-sources.ts';
import { AGENT_VERSION } from '../host/agent-version.ts';
import { toolRunner } from '../host/run-tool.ts';
import { UpdateError, updateProgram } from '../update/update-program.ts';
import type { CommandContext } from './command-context.ts';

/** Maximum duration of an update: 120 MB at 1 Mbit/s. */
const UPDATE_MS = 20 * 60_000;

const FLAGS = {
  gateway: { value: 'URL', help: 'gateway with the release; default: the first gateway of the configuration' },
  config: { value: 'FILE', takes: 'file', help: 'configuration file' },
  ...JSON_FLAG,
} as const satisfies Flags;

export const UPDATE_COMMAND: Command<CommandContext> = {
  summary: "install the agent of the gateway's release",
  examples: `[--gateway URL]

Downloads the release's signed manifest and this machine's agent from the gateway, and replaces this program. It refuses a release that another key
signed, an older release, and a file with another digest. Agents that run use the new program when they start again: \`otela-gateway rollout\`.`,
  flags: FLAGS,
  run: updateCommand,
};

async function updateCommand(argv: readonly string[], { env, io }: CommandContext): Promise<number> {
  const { given, values } = parseLine(argv, FLAGS);
  const settings = readSettingValues(new Map([...given].filter(([name]) => name !== 'json')), env).values;
  const [gateway] = settings.get(GATEWAY_SETTINGS.gateways.env)?.values ?? [];
  if (gateway === undefined) throw new UsageError('a gateway is missing: give --gateway URL or set OTELA_GATEWAY');
  if (!isSea())
    throw new UsageError('this agent was installed by npm: install the new package with npm install --global');
  try {
    const result = await updateProgram({
      gateway: gatewayUrl(gateway),
      program: process.execPath,
      version: AGENT_VERSION,
      env,
      run: toolRunner(env),
      signal: AbortSignal.timeout(UPDATE_MS),
    });
    const { from, to, changed } = result;
    io.out(values.json ? JSON.stringify(result) : changed ? `Updated from ${from} to ${to}.` : `${to} is installed.`);
    return EXIT_DONE;
  } catch (error) {
    if (!(error instanceof UpdateError)) throw error;
    io.stderr.write(`otela-agent: ${error.message}\n`);
    return EXIT_REFUSED;
  }
}
