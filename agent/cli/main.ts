#!/usr/bin/env node
/** `otela-agent`: serves a model engine of this machine to gateways, over connections that go outward only. */
import { isSea } from 'node:sea';
import type { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { nearest } from '../../shared/text/nearest.ts';
import { EXIT_DONE, EXIT_ENGINE, EXIT_USAGE, UsageError } from '../config/exit.ts';
import type { Env } from '../config/sources.ts';
import { within } from '../life/wait.ts';
import { deliverWill } from '../tunnel/last-will.ts';
import { COMMANDS, completionCommand, isCommand } from './commands.ts';
import { configCommand } from './config.ts';
import { doctorCommand } from './doctor/doctor.ts';
import { drainCommand } from './drain.ts';
import { helpFor } from './help.ts';
import { flushed, makeIo } from './io.ts';
import { logsCommand } from './logs.ts';
import { metricsCommand } from './metrics.ts';
import { modelsCommand } from './models.ts';
import { sbatchCommand } from './sbatch.ts';
import { type Outside, startCommand } from './start.ts';
import { statusCommand } from './status.ts';
import { versionCommand } from './version.ts';

/** Not for people: what an agent that was killed had to say, on standard input. */
const LAST_WILL = 'last-will';

/** Replaced in tests; a process has its own. */
export interface MainOptions extends Partial<Outside> {
  stdout?: Writable;
  stderr?: Writable;
}

/** `argv` begins after the program's name. Resolves with the exit code and never rejects. */
export async function main(argv: readonly string[], env: Env, options: MainOptions = {}): Promise<number> {
  const io = makeIo(options.stdout ?? process.stdout, options.stderr ?? process.stderr, env);
  const [command = 'help', ...rest] = argv;
  try {
    if (asksForHelp(command, rest)) {
      io.out(helpFor(helped(command, rest)));
      return EXIT_DONE;
    }
    switch (command) {
      case 'start':
        return await startCommand(rest, env, io, options);
      case 'status':
        return await statusCommand(rest, env, io);
      case 'models':
        return await modelsCommand(rest, env, io);
      case 'logs':
        return await logsCommand(rest, env, io);
      case 'metrics':
        return await metricsCommand(rest, env, io);
      case 'drain':
        return await drainCommand(rest, env, io);
      case 'doctor':
        return await doctorCommand(rest, env, io);
      case 'sbatch':
        return await sbatchCommand(rest, env, io);
      case 'config':
        return configCommand(rest, env, io);
      case 'completion':
        return completionCommand(rest, io);
      case LAST_WILL:
        await deliverWill(await text(process.stdin), env);
        return EXIT_DONE;
      case 'version':
      case '--version':
        return versionCommand(rest, io);
      default:
        throw unknownCommand(command);
    }
  } catch (error) {
    const usage = error instanceof UsageError;
    io.stderr.write(`otela-agent: ${error instanceof Error ? error.message : String(error)}\n`);
    if (usage) io.stderr.write(`Try: otela-agent ${isCommand(command) ? `${command} ` : ''}--help\n`);
    else if (error instanceof Error) io.stderr.write(`${error.stack}\n`);
    return usage ? EXIT_USAGE : EXIT_ENGINE;
  }
}

/** Only before the engine's command: `start -- vllm serve --help` asks vLLM. */
function asksForHelp(command: string, rest: readonly string[]): boolean {
  if (command === 'help' || command === '--help' || command === '-h') return true;
  const end = rest.findIndex((word) => word === '--' || word === '--process' || word.startsWith('--process='));
  return (
    isCommand(command) && rest.slice(0, end < 0 ? undefined : end).some((word) => word === '--help' || word === '-h')
  );
}

/** `otela-agent help status` is `otela-agent status --help`. */
function helped(command: string, [named]: readonly string[]): string {
  if (command !== 'help' || named === undefined || named.startsWith('-')) return command;
  if (!isCommand(named)) throw unknownCommand(named);
  return named;
}

function unknownCommand(command: string): UsageError {
  const names = Object.keys(COMMANDS);
  const near = nearest(command, names);
  return new UsageError(
    `unknown command "${command}"${near ? `; did you mean ${near}?` : `; there are ${names.join(', ')}`}`,
  );
}

/** A job that ends does not wait for whoever reads its output and has stopped doing so. */
const LAST_WORDS_MS = 2000;

/** A pipe takes 64 KiB at a time: the rest waits here for its reader, and an exit would drop it. */
async function run(argv: readonly string[]): Promise<void> {
  const program = isSea() ? [process.execPath] : [process.execPath, ...process.argv.slice(1, 2)];
  const code = await main(argv, process.env, { willCommand: [...program, LAST_WILL] });
  const taken = Promise.all([flushed(process.stdout), flushed(process.stderr)]);
  if (argv[0] === 'start') await within(LAST_WORDS_MS, taken);
  else await taken;
  process.exit(code);
}

// Not awaited: as one file it is a CommonJS script, and those cannot wait at their top.
if (import.meta.main) void run(process.argv.slice(2));
