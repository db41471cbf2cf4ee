/**
 * Two kinds of time in a test. A *promise* is a time that the product guarantees: a test asserts it. *Patience* is how
 * long a test waits before it reports a hang: no test asserts it, and it is generous, because an expired wait must
 * never mean that the machine is slow. Both scale with one factor, which `slowness.ts` measures when a run starts.
 */

/** Variable with the factor. The first process of a run sets it, and its children inherit it. */
export const SLOWNESS_VARIABLE = 'OTELA_TEST_SLOWNESS';
/** Minimum wait before a hang is reported: a process that shares two cores with other tests may not run for seconds. */
const LEAST_PATIENCE_MS = 30_000;
/** How many times longer than on a quiet machine a slow operation may take next to other tests. */
const BESIDE_OTHERS = 5;

/** How many times slower this machine is than the one for which the tests' times were chosen; at least 1. */
export const slowness = (): number => Math.max(1, Number(process.env[SLOWNESS_VARIABLE] ?? 1));

/** How long to wait for an operation that takes at most `ms` on a quiet machine, before a test reports a hang. */
export const patience = (ms = 0): number => Math.ceil(slowness() * Math.max(LEAST_PATIENCE_MS, BESIDE_OTHERS * ms));

/** A time that the product promises, scaled for this machine; unchanged if the machine is not slow. */
export const promise = (ms: number): number => Math.ceil(slowness() * ms);

/**
 * The number of requests since `askedAt` that a limit of `limit` per minute allows. On a slow machine, sending may take
 * more than a minute.
 */
export const limitSince = (limit: number, askedAt: number): number =>
  limit * (1 + Math.floor((Date.now() - askedAt) / 60_000));

const FIRST_PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 500;

/** Pauses between two polls: most conditions hold immediately, and polling for slow ones must not slow them down. */
export function* pauses(): Generator<number, never> {
  for (let ms = FIRST_PAUSE_MS; ; ms = Math.min(LONGEST_PAUSE_MS, 1.5 * ms)) yield ms;
}
