/** `otela-agent service install|uninstall`: the agent as a service of systemd. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { isSea } from 'node:sea';
import { type Command, EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { COMMAND_FLAG } from '../config/all-settings.ts';
import { EXIT_ENGINE } from '../config/exit-codes.ts';
import { homeOf } from '../config/secret-file.ts';
import { toolRunner } from '../host/run-tool.ts';
import { serviceUnit } from '../update/service-unit.ts';
import type { CommandContext } from './command-context.ts';

const UNIT = 'otela-agent.service';
const FLAGS = {
  system: { help: 'a service of the machine instead of the user; needs root' },
  print: { help: 'print the unit, and change nothing' },
  ...COMMAND_FLAG,
} as const satisfies Flags;

export const SERVICE_COMMAND: Command<CommandContext> = {
  summary: 'start the agent with the machine, as a service of systemd',
  examples: `install [--system] [--print] [-- ENGINE COMMAND…]
  otela-agent service uninstall [--system]

  otela-agent service install -- vllm serve Qwen/Qwen3-8B
  journalctl --user -u otela-agent --follow

The agent reads gateway and token from its configuration file. A user's service runs while the user is not logged in, if the machine allows
lingering (loginctl enable-linger). Installing again replaces the service.`,
  flags: FLAGS,
  run: serviceCommand,
};

async function serviceCommand(argv: readonly string[], { env, io }: CommandContext): Promise<number> {
  const [action, ...rest] = argv;
  if (action !== 'install' && action !== 'uninstall')
    throw new UsageError('say what to do: otela-agent service install, or otela-agent service uninstall');
  const { values, command = [] } = parseLine(rest, FLAGS);
  const user = !values.system;
  const home = homeOf(env);
  if (home === undefined) throw new UsageError('HOME is not set');
  const path = user
    ? join(env.XDG_CONFIG_HOME || join(home, '.config'), 'systemd/user', UNIT)
    : join('/etc/systemd/system', UNIT);
  const run = toolRunner(env);
  const systemctl = (...args: string[]) => run('systemctl', user ? ['--user', ...args] : args);
  const failed = (what: string, reason: string): number => {
    io.stderr.write(`otela-agent: ${what}: ${reason}\n`);
    return EXIT_ENGINE;
  };
  if (action === 'uninstall') {
    const disabled = await systemctl('disable', '--now', UNIT);
    rmSync(path, { force: true });
    await systemctl('daemon-reload');
    if (!disabled.ok) return failed(`${path} is removed, but the service may still run`, disabled.reason);
    io.out(`Removed ${path}.`);
    return EXIT_DONE;
  }
  const unit = serviceUnit({
    command: [...ownCommand(), 'start', ...engine(command)],
    user,
    path: env.PATH ?? '',
    home,
  });
  if (values.print) {
    io.out(unit.trimEnd());
    return EXIT_DONE;
  }
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, unit);
  for (const args of [['daemon-reload'], ['enable', UNIT], ['restart', UNIT]]) {
    const answer = await systemctl(...args);
    if (!answer.ok) return failed(`${path} is written, but systemd did not start the service`, answer.reason);
  }
  io.out(`Installed and started ${path}.`);
  const linger = user ? await run('loginctl', ['enable-linger']) : undefined;
  if (linger?.ok === false)
    io.out(`The service ends when you log out: ${linger.reason}. Ask an administrator: loginctl enable-linger USER`);
  return EXIT_DONE;
}

/** The command that started this program. An update replaces the file under the same path. */
function ownCommand(): string[] {
  return isSea() ? [process.execPath] : [process.execPath, ...process.argv.slice(1, 2)];
}

function engine(command: readonly string[]): string[] {
  return command.length === 0 ? [] : ['--', ...command];
}
