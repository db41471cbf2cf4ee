/**
 * A machine may be so many times slower than the one on which the limits of waits were chosen. A wait that is over says that something hangs,
 * never that it is slow: where the time is the promise, a test measures it.
 */
export const PATIENCE = 3;
