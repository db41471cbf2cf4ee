#!/usr/bin/env node
/** `otela-plan`: decides which model runs on which GPUs, by simulation, and explains why. */
import { EXIT_SOFTWARE, EXIT_USAGE, runProgram } from '../../shared/command-line/index.ts';
import { type Io, makeIo } from '../../shared/terminal/command-io.ts';
import { SchedulerError } from '../errors.ts';
import { PLAN_PROGRAM } from './commands.ts';
import { planExitCode } from './exit-codes.ts';
import { FACTORY_ACTS } from './removed-commands.ts';

/** `argv` excludes the program's name. Resolves to the exit code and never rejects. */
export function main(argv: readonly string[], io: Io = makeIo(process.stdout, process.stderr)): Promise<number> {
  if (argv[0] === 'apply') {
    io.log(`otela-plan: apply was removed: ${FACTORY_ACTS}`);
    return Promise.resolve(EXIT_USAGE);
  }
  return runProgram(PLAN_PROGRAM, argv, io, {
    out: io.out,
    complain: io.log,
    exitOf: (error) => (error instanceof SchedulerError ? planExitCode(error.code) : undefined),
    failed: EXIT_SOFTWARE,
  });
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
