#!/usr/bin/env node
/** `otela-factory`: keeps as many jobs on clusters as requests and batches ask for. */
import { parseArgs } from 'node:util';
import { FactoryError } from '../errors.ts';
import { EXIT_DONE, EXIT_FAILED, exitOf } from './exit.ts';
import { type Io, makeIo } from './io.ts';
import { runCommand } from './run.ts';

export const VERSION = '0.1.0';

/** `argv` begins after the program's name. Resolves with the exit code and never rejects. */
export async function main(argv: readonly string[], io: Io = makeIo(process.stdout, process.stderr)): Promise<number> {
  const [command = 'help', ...rest] = argv;
  try {
    const { values } = parseArgs({ args: [...rest], options: { config: { type: 'string' } } });
    if (command === 'run') return await runCommand(values.config ?? 'factory.toml', io);
    if (command === 'version') {
      io.out(VERSION);
      return EXIT_DONE;
    }
    throw new FactoryError('usage', `unknown command "${command}"`);
  } catch (error) {
    io.log(`otela-factory: ${error instanceof Error ? error.message : String(error)}`);
    if (error instanceof FactoryError) return exitOf(error.code);
    if (error instanceof Error && error.stack) io.log(error.stack);
    return EXIT_FAILED;
  }
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
