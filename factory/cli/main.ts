#!/usr/bin/env node
/** `otela-factory`: keeps as many jobs on clusters as requests and batches ask for. */
import { nearest } from '../../shared/text/nearest.ts';
import { FactoryError } from '../errors.ts';
import { checkCommand } from './check.ts';
import { completionCommand } from './completion.ts';
import { EXIT_DONE, EXIT_FAILED, exitOf } from './exit.ts';
import { COMMANDS, type CommandName, configPath, type Given, help, isCommand, readFlags } from './flags.ts';
import { type Io, makeIo } from './io.ts';
import { recipeCommand } from './recipe.ts';
import { dryRun, runCommand } from './run.ts';
import { explainCommand, statusCommand } from './status.ts';

export const VERSION = '0.1.0';

/** `argv` begins after the program's name. Resolves with the exit code and never rejects. */
export async function main(argv: readonly string[], io: Io = makeIo(process.stdout, process.stderr)): Promise<number> {
  const [word = 'help', ...rest] = argv;
  try {
    const name = word === '--version' ? 'version' : word === '--help' || word === '-h' ? 'help' : word;
    if (!isCommand(name)) {
      const meant = nearest(name, Object.keys(COMMANDS));
      throw new FactoryError(
        'usage',
        `unknown command "${name}"${meant === undefined ? '' : `; did you mean ${meant}?`}`,
      );
    }
    const given = readFlags(name, rest);
    if (given.values.help === true) {
      io.out(help(name));
      return EXIT_DONE;
    }
    return await run(name, given, io);
  } catch (error) {
    io.log(`otela-factory: ${error instanceof Error ? error.message : String(error)}`);
    if (error instanceof FactoryError) return exitOf(error.code);
    if (error instanceof Error && error.stack) io.log(error.stack);
    return EXIT_FAILED;
  }
}

async function run(name: CommandName, given: Given, io: Io): Promise<number> {
  switch (name) {
    case 'run':
      return given.values['dry-run'] === true ? dryRun(configPath(given), io) : runCommand(configPath(given), io);
    case 'check':
      return checkCommand(configPath(given), given.values.offline === true, io);
    case 'status':
      return statusCommand(configPath(given), given.values.json === true, io);
    case 'explain':
      return explainCommand(configPath(given), given.argument, given.values.json === true, io);
    case 'recipe':
      return recipeCommand(given, io);
    case 'completion':
      return completionCommand(given.argument, io);
    case 'help':
      io.out(help(given.argument !== undefined && isCommand(given.argument) ? given.argument : undefined));
      return EXIT_DONE;
    case 'version':
      io.out(VERSION);
      return EXIT_DONE;
  }
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
