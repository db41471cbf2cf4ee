/** What runs longer hangs: the slowest test takes two minutes on a quiet machine. Where the time is the promise, a test measures it. */
export const LIMITS = { testTimeout: 600_000, hookTimeout: 600_000, expect: { poll: { timeout: 30_000 } } };
