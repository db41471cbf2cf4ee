#!/usr/bin/env node
/** The entry point of `otela-gateway`. */
import { runProgram } from '../../shared/command-line/index.ts';
import { CommandError, EXIT_FAILED } from '../command-error.ts';
import { boundYoungGeneration } from '../hosts/node/serve/young-generation.ts';
import { IssuerError } from '../issuer/issuer.ts';
import { watchStdout } from './closed-stdout.ts';
import { GATEWAY_PROGRAM } from './commands.ts';

const argv = process.argv.slice(2);
watchStdout();
if (argv[0] === 'serve') boundYoungGeneration();
process.exitCode = await runProgram(GATEWAY_PROGRAM, argv, undefined, {
  out: console.log,
  complain: console.error,
  exitOf: (error) => {
    if (error instanceof CommandError) return error.exitCode;
    // The stack trace is printed only if DEBUG is set.
    return error instanceof IssuerError || process.env.DEBUG === undefined ? EXIT_FAILED : undefined;
  },
  failed: EXIT_FAILED,
});
