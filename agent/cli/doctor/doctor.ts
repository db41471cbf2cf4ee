/** `otela-agent doctor`: what would stop an agent here, each with its fix. Joins nothing and starts nothing. */

import { bad, described, type Finding, good, odd } from '../../../shared/terminal/finding.ts';
import { toolRunner } from '../../host/run-tool.ts';
import { postToGateway } from '../../tunnel/gateway-request.ts';
import { JSON_FLAG } from '../choose.ts';
import { EXIT_DONE, EXIT_ENGINE, UsageError } from '../exit.ts';
import { type FlagSpec, parseFlags, refuseStray } from '../flags.ts';
import type { Io } from '../io.ts';
import { START_FLAGS } from '../settings.ts';
import { type Env, readSettings } from '../sources.ts';
import { type StartConfig, startConfig } from '../start-config.ts';
import { checkGateway } from './gateway-check.ts';
import { checkEngine, checkGpus, checkJob, checkState } from './host-checks.ts';

const TOKEN = /^otela-join-[\w-]{43}$/;

export const FLAGS: readonly FlagSpec[] = [...START_FLAGS, JSON_FLAG];

export async function doctorCommand(argv: readonly string[], env: Env, io: Io): Promise<number> {
  const { flags, positionals, command } = parseFlags(argv, FLAGS);
  refuseStray(positionals, "; the engine's command comes after --");
  const asJson = flags.has('json');
  flags.delete('json');
  const run = toolRunner(env);
  const config = settled(() => startConfig(readSettings(flags, env), command, env));
  const findings: Finding[] =
    config instanceof UsageError
      ? [
          bad(
            'settings',
            config.message,
            'otela-agent start --help tells every flag; otela-agent config where each value comes from.',
          ),
        ]
      : await checkConfig(config, env);
  findings.push(await checkGpus(env, run), await checkJob(env, run), checkState(env));
  if (asJson) io.out(JSON.stringify(findings, null, 2));
  else for (const finding of findings) io.out(described(finding, io.paint));
  return findings.some(({ verdict }) => verdict === 'bad') ? EXIT_ENGINE : EXIT_DONE;
}

async function checkConfig(config: StartConfig, env: Env): Promise<Finding[]> {
  const now = () => Date.now();
  const ways = await Promise.all(
    config.gateways.map((gateway) => checkGateway({ gateway, env, post: postToGateway, now })),
  );
  const warnings = config.warnings.map((warning) => odd('settings', warning, 'It works; better is to mend it.'));
  return [...warnings, ...ways.flat(), checkToken(config.token), await checkEngine(config.command, config.engine, env)];
}

function checkToken(token: string): Finding {
  if (TOKEN.test(token)) return good('token', 'looks like a join token; whether the gateway knows it shows at start');
  return bad(
    'token',
    'is no join token: those begin with otela-join-',
    'Ask your operator: otela-gateway tokens create --provider P.',
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
