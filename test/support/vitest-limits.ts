/** What runs longer hangs: the slowest test takes two minutes on a quiet machine. Where the time is the promise, a test measures it. */
import './slowness.ts';
import { patience, SLOWNESS_VARIABLE } from './patience.ts';

export const LIMITS = {
  testTimeout: patience(120_000),
  hookTimeout: patience(120_000),
  expect: { poll: { timeout: patience() } },
  /** Workers, Cloudflare's runtime among them, go by the measure that this process took. */
  env: { [SLOWNESS_VARIABLE]: process.env[SLOWNESS_VARIABLE] ?? '1' },
};
