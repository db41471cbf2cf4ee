#!/usr/bin/env node
/** `otela-plan`: decides which model runs on which GPUs, by a simulator, and says why. */
import { nearest } from '../catalogue/nearest.ts';
import { SchedulerError } from '../errors.ts';
import { applyCommand } from './apply.ts';
import { calibrateCommand } from './calibrate.ts';
import { catalogueCommand } from './catalogue.ts';
import { compareCommand } from './compare.ts';
import { completionCommand } from './completion.ts';
import { EXIT_DONE, EXIT_FAILED, exitOf } from './exit.ts';
import { COMMANDS, help } from './help.ts';
import { type Io, makeIo } from './io.ts';
import { planCommand } from './plan.ts';
import { simulateCommand } from './simulate.ts';
import { validateCommand } from './validate.ts';
import { watchCommand } from './watch.ts';

export const VERSION = '0.1.0';

/** `argv` begins after the program's name. Resolves with the exit code and never rejects. */
export async function main(argv: readonly string[], io: Io = makeIo(process.stdout, process.stderr)): Promise<number> {
  const [command = 'help', ...rest] = argv;
  try {
    if (command === '--help' || command === '-h' || rest.includes('--help') || rest.includes('-h')) {
      io.out(help(command));
      return EXIT_DONE;
    }
    return await run(command, rest, io);
  } catch (error) {
    io.log(`otela-plan: ${error instanceof Error ? error.message : String(error)}`);
    if (error instanceof SchedulerError) return exitOf(error.code);
    if (error instanceof Error && error.stack) io.log(error.stack);
    return EXIT_FAILED;
  }
}

async function run(command: string, rest: readonly string[], io: Io): Promise<number> {
  switch (command) {
    case 'catalogue':
      return catalogueCommand(rest, io);
    case 'plan':
      return await planCommand(rest, io);
    case 'compare':
      return await compareCommand(rest, io);
    case 'simulate':
      return simulateCommand(rest, io);
    case 'validate':
      return validateCommand(rest, io);
    case 'calibrate':
      return await calibrateCommand(rest, io);
    case 'apply':
      return await applyCommand(rest, io);
    case 'watch':
      return await watchCommand(rest, io);
    case 'completion':
      return completionCommand(rest, io);
    case 'version':
    case '--version':
      io.out(VERSION);
      return EXIT_DONE;
    case 'help':
      io.out(help(rest[0]));
      return EXIT_DONE;
    default:
      throw new SchedulerError(
        'usage',
        `unknown command "${command}"; nearest: ${nearest(command, COMMANDS, 2).join(', ')}`,
      );
  }
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
