#!/usr/bin/env node
/** `otela-factory`: keeps as many jobs on clusters as requests and batches ask for. */
import { complaint, EXIT_DONE, EXIT_USAGE, readCommand, UsageError } from '../../shared/command-line/index.ts';
import { FactoryError } from '../errors.ts';
import { PROGRAM } from './commands.ts';
import { EXIT_FAILED, exitOf } from './exit.ts';
import { type Io, makeIo } from './io.ts';

/** `argv` begins after the program's name. Resolves with the exit code and never rejects. */
export async function main(argv: readonly string[], io: Io = makeIo(process.stdout, process.stderr)): Promise<number> {
  try {
    const asked = readCommand(PROGRAM, argv);
    if (asked.kind === 'run') return await asked.command.run(asked.args, io);
    io.out(asked.text);
    return EXIT_DONE;
  } catch (error) {
    io.log(complaint(PROGRAM, argv, error));
    if (error instanceof UsageError) return EXIT_USAGE;
    if (error instanceof FactoryError) return exitOf(error.code);
    if (error instanceof Error && error.stack) io.log(error.stack);
    return EXIT_FAILED;
  }
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
