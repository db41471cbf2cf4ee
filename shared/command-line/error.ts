/** The command line or the configuration cannot mean anything; nothing was done. Printed without a stack, exit code 2. */
export class UsageError extends Error {
  readonly code = 'usage';
  override readonly name = 'UsageError';
}
