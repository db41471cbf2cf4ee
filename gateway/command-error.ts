/** Exit codes and errors that the `otela-gateway` commands share. */

/** Exit code if the gateway refused, or if something prevents the command. */
export const EXIT_FAILED = 1;

/** An error that the operator or the network caused. Printed without a stack trace. */
export class CommandError extends Error {
  readonly exitCode: number = EXIT_FAILED;
}
