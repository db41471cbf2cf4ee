/** Shared parts of the `otela-gateway` commands, in addition to the command-line kit: exit codes and errors. */

/** The gateway refused, or something prevents the command. */
export const EXIT_FAILED = 1;

/** Caused by the operator or the network: printed without a stack. */
export class CommandError extends Error {
  readonly exitCode: number = EXIT_FAILED;
}
