#!/usr/bin/env node
/** `otela-gateway`. */
import { complaint, EXIT_DONE, EXIT_USAGE, readCommand, UsageError } from '../../shared/command-line/index.ts';
import { CommandError, EXIT_FAILED } from '../command.ts';
import { boundYoungGeneration } from '../hosts/node/serve/young-generation.ts';
import { IssuerError } from '../issuer/issuer.ts';
import { PROGRAM } from './commands.ts';
import { watchReader } from './reader.ts';

async function main(argv: readonly string[]): Promise<number> {
  const asked = readCommand(PROGRAM, argv);
  if (asked.kind === 'run') {
    if (argv[0] === 'serve') boundYoungGeneration();
    return asked.command.run(asked.args);
  }
  console.log(asked.text);
  return EXIT_DONE;
}

const argv = process.argv.slice(2);
watchReader();
try {
  process.exitCode = await main(argv);
} catch (error) {
  console.error(complaint(PROGRAM, argv, error));
  const isWrongUse = error instanceof UsageError;
  const expected = isWrongUse || error instanceof CommandError || error instanceof IssuerError;
  if (!expected && process.env.DEBUG !== undefined) console.error(error);
  process.exitCode = isWrongUse ? EXIT_USAGE : error instanceof CommandError ? error.exitCode : EXIT_FAILED;
}
