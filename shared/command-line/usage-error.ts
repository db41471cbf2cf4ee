/** The command line or the configuration is invalid, and nothing was done. Printed without a stack; exit code 2. */
export class UsageError extends Error {
  readonly code = 'usage';
  override readonly name = 'UsageError';
}
