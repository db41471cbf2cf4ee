/**
 * `otela-agent doctor`: every problem that would stop an agent here, with its fix. Joins nothing and starts nothing.
 */

import { type Command, EXIT_DONE, JSON_FLAG, parseLine, UsageError } from '../../../shared/command-line/index.ts';
import {
  type CheckResult,
  checkFailed,
  checkPassed,
  checkText,
  checkWarning,
} from '../../../shared/terminal/check-result.ts';
import { START_FLAGS } from '../../config/all-settings.ts';
import { EXIT_ENGINE } from '../../config/exit-codes.ts';
import { GATEWAY_SETTINGS, gatewayUrl } from '../../config/gateways-config.ts';
import type { Env } from '../../config/setting.ts';
import { readSettingValues, type SettingValues } from '../../config/setting-sources.ts';
import { type StartConfig, startConfig } from '../../config/start-config.ts';
import { toolRunner } from '../../host/run-tool.ts';
import { relayProxyUrl } from '../../mesh/proxy-relay/relay-credentials.ts';
import { RelayLocation } from '../../mesh/proxy-relay/relay-location.ts';
import { postToGateway } from '../../tunnel/gateway-request.ts';
import { authority } from '../../tunnel/open-websocket.ts';
import type { CommandContext } from '../command-context.ts';
import { checkGateway } from './gateway-check.ts';
import { checkEngine, checkFunctions, checkGpus, checkJob, checkState } from './host-checks.ts';

const TOKEN = /^otela-join-[\w-]{43}$/;

const FLAGS = { ...START_FLAGS, ...JSON_FLAG };

export const AGENT_DOCTOR_COMMAND: Command<CommandContext> = {
  summary: 'check whether an agent can run here, and show how to fix problems',
  examples: `[flags of start] [--json] [-- COMMAND…]

Shows what would prevent an agent from running here, and how to fix it. It does not join a gateway:
  otela-agent doctor --gateway https://gw.example.org --token-file ~/.otela-token -- vllm serve Qwen/Qwen3-8B

Checks the settings, the connection to each gateway (including proxies), the clock, the file of the join token, GPUs, the Slurm job,
the program or address of the engine, the Python and the sandbox of functions, and the state directory. Exit code: 0 if it found no problem, 70 otherwise.`,
  flags: FLAGS,
  run: doctorCommand,
};

async function doctorCommand(argv: readonly string[], { env, io }: CommandContext): Promise<number> {
  const { given, command, values } = parseLine(argv, FLAGS, { hint: () => "; the engine's command comes after --" });
  const run = toolRunner(env);
  const settings = settled(() => readSettingValues(given, env));
  const findings = settings instanceof UsageError ? [wrong(settings)] : await checkSettings(settings, command, env);
  findings.push(await checkGpus(env, run), await checkJob(env, run), checkState(env));
  if (values.json) io.out(JSON.stringify(findings, null, 2));
  else for (const finding of findings) io.out(checkText(finding, io.paint));
  return findings.some(({ verdict }) => verdict === 'bad') ? EXIT_ENGINE : EXIT_DONE;
}

/** If a setting is wrong, the checks that need all settings are skipped, but the gateways are still checked. */
async function checkSettings(settings: SettingValues, command: string[] | undefined, env: Env): Promise<CheckResult[]> {
  const config = settled(() => startConfig(settings, command, env));
  if (!(config instanceof UsageError)) return checkConfig(config, env);
  const texts = settings.values.get(GATEWAY_SETTINGS.gateways.env)?.values ?? [];
  const gateways = texts.map((text) => settled(() => gatewayUrl(text))).filter((url) => url instanceof URL);
  return [wrong(config), ...(await checkWays(gateways, env))];
}

function wrong(error: UsageError): CheckResult {
  const fix = 'otela-agent start --help lists every flag. otela-agent config shows the source of each value.';
  return checkFailed('settings', error.message, fix);
}

async function checkWays(gateways: readonly URL[], env: Env, relayTo?: (gateway: URL) => URL): Promise<CheckResult[]> {
  const now = () => Date.now();
  const ways = gateways.map((gateway) =>
    checkGateway({ gateway, env, relay: relayTo?.(gateway), post: postToGateway, now }),
  );
  return (await Promise.all(ways)).flat();
}

async function checkConfig(config: StartConfig, env: Env): Promise<CheckResult[]> {
  const { gateways, token, mesh } = config;
  const { relay } = mesh;
  const relayTo =
    relay === undefined
      ? undefined
      : (gateway: URL) => relayProxyUrl(new RelayLocation(relay).address, authority(gateway), token);
  const ways = await checkWays(gateways, env, relayTo);
  const warnings = config.warnings.map((warning) => checkWarning('settings', warning, 'Works, but fix it.'));
  const functions = config.functions === undefined ? [] : await checkFunctions(config.functions, env, toolRunner(env));
  return [...warnings, ...ways, checkToken(token), await checkEngine(config, env), ...functions];
}

function checkToken(token: string): CheckResult {
  if (TOKEN.test(token)) return checkPassed('token', 'looks like a join token; the gateway checks it at start');
  return checkFailed(
    'token',
    'is not a join token: those begin with otela-join-',
    'Ask your operator for one: otela-gateway tokens create --provider P.',
  );
}

function settled<T>(read: () => T): T | UsageError {
  try {
    return read();
  } catch (error) {
    if (error instanceof UsageError) return error;
    throw error;
  }
}
