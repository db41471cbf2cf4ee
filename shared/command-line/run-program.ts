import { commandErrorMessage, EXIT_DONE, EXIT_USAGE, type Program, readCommand } from './command-program.ts';
import { UsageError } from './usage-error.ts';

/** Where a program writes, and which exit codes its errors have. */
interface RunOptions {
  out(text: string): void;
  /** Prints the error message for the person at the terminal. */
  complain(text: string): void;
  /** The exit code of an expected error. Undefined if the error is a bug; then it is printed with its stack. */
  exitOf(error: unknown): number | undefined;
  /** The exit code of a bug. */
  failed: number;
}

/** @param argv the arguments after the program's name. Resolves with the exit code, and never rejects. */
export async function runProgram<C>(
  program: Program<C>,
  argv: readonly string[],
  context: C,
  { out, complain, exitOf, failed }: RunOptions,
): Promise<number> {
  try {
    const asked = readCommand(program, argv);
    if (asked.kind === 'run') return await asked.command.run(asked.args, context);
    out(asked.text);
    return EXIT_DONE;
  } catch (error) {
    complain(commandErrorMessage(program, argv, error));
    if (error instanceof UsageError) return EXIT_USAGE;
    const code = exitOf(error);
    if (code === undefined && error instanceof Error && error.stack) complain(error.stack);
    return code ?? failed;
  }
}
