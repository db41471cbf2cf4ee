#!/usr/bin/env node
/** `otela-factory`: keeps as many jobs on clusters as requests and batches need. */
import { EXIT_SOFTWARE, runProgram } from '../../shared/command-line/index.ts';
import { type Io, makeIo } from '../../shared/terminal/command-io.ts';
import { FactoryError } from '../factory-error.ts';
import { FACTORY_PROGRAM } from './commands.ts';
import { factoryExitCode } from './exit-code.ts';

/** Runs the program. `argv` excludes the program's name. Resolves to the exit code and never rejects. */
export function main(argv: readonly string[], io: Io = makeIo(process.stdout, process.stderr)): Promise<number> {
  return runProgram(FACTORY_PROGRAM, argv, io, {
    out: io.out,
    complain: io.log,
    exitOf: (error) => (error instanceof FactoryError ? factoryExitCode(error.code) : undefined),
    failed: EXIT_SOFTWARE,
  });
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
