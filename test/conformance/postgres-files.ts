/**
 * The files of this suite that `npm test` runs with the accounts in PostgreSQL, in the part `postgresql`: those about
 * accounts, keys, limits, usage, files and batches. Any other file runs with `OTELA_TEST_HOST=postgresql npx vitest run
 * --project conformance FILE`.
 */
export const POSTGRES_FILES: readonly string[] = [
  'people',
  'access/limits',
  'access/login',
  'access/trust',
  'records',
  'http/reports',
  'http/uploads',
  'http/hostile-files',
  'batch/batches',
  'batch/batch-edge-cases',
  'sdk/openai-sdk',
  'routing',
];
