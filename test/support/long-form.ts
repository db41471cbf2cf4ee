/** Scales tests that could run for ever, by seeds, generated cases or simulated days, for the suite's two forms. */

/** Set by `npm run test:all` and in CI. */
export const LONG_VARIABLE = 'OTELA_TEST_LONG';

/** The short form's share. */
const SHARE = 0.1;

/** `count` in the long form, a tenth of it in the short form. */
export function scaled(count: number): number {
  return process.env[LONG_VARIABLE] === undefined ? Math.ceil(count * SHARE) : count;
}
