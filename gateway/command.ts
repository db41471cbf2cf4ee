/** What the commands of `otela-gateway` have in common beside the command-line kit: exit codes and errors. */

/** The gateway said no, or something is in the way. */
export const EXIT_FAILED = 1;
/** EX_UNAVAILABLE of sysexits.h: no gateway answers there. */
export const EXIT_UNREACHABLE = 69;

/** Of the operator's making, or the network's: told without a stack. */
export class CommandError extends Error {
  readonly exitCode: number = EXIT_FAILED;
}
