/** Exit codes that job scripts test for. */

/** The work is done: drained on request, or because the job's time was nearly up. */
export const EXIT_DONE = 0;
/** Wrong use or wrong configuration; nothing was started. */
export const EXIT_USAGE = 2;
/** EX_UNAVAILABLE of sysexits.h: every gateway refused this agent, trying again cannot help. */
export const EXIT_REFUSED = 69;
/** EX_SOFTWARE of sysexits.h: the engine ended by itself. */
export const EXIT_ENGINE = 70;
/** 128 + SIGTERM, as a shell reports it: ended by a signal, after draining. */
export const EXIT_SIGNALLED = 143;

/** The person who typed the command can mend this: printed without a stack, exit code 2. */
export class UsageError extends Error {
  readonly code = 'usage';
  override readonly name = 'UsageError';
}
