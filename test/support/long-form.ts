/** How much the two forms of the suite try of what could be tried for ever: seeds, generated cases, simulated days. */

/** Set by `npm run test:all` and in CI. */
export const LONG_VARIABLE = 'OTELA_TEST_LONG';

/** The short form's share. */
const SHARE = 0.1;

/** `count` in the long form, a tenth of it in the short one. */
export function scaled(count: number): number {
  return process.env[LONG_VARIABLE] === undefined ? Math.ceil(count * SHARE) : count;
}
