/**
 * A longer test hangs: the slowest takes two minutes on a quiet machine. If the time is a promise, the test measures
 * it.
 */
import './slowness.ts';
import { patience, SLOWNESS_VARIABLE } from './patience.ts';

export const LIMITS = {
  testTimeout: patience(120_000),
  hookTimeout: patience(120_000),
  expect: { poll: { timeout: patience() } },
  /** Workers, including Cloudflare's runtime, use the factor that this process measured. */
  env: { [SLOWNESS_VARIABLE]: process.env[SLOWNESS_VARIABLE] ?? '1' },
};
