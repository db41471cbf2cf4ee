/**
 * Two kinds of time in a test. A *promise* is what the product says of itself: a test asserts it. *Patience* is how long a test waits until it
 * calls a thing hung: no test asserts it, and it is generous, since a wait that is over must never mean that the machine is slow.
 * Both follow one factor, which `slowness.ts` measures when a run starts.
 */

/** Set by the first process of a run; its children inherit it, so that all of them go by one measure. */
export const SLOWNESS_VARIABLE = 'OTELA_TEST_SLOWNESS';
/** What hangs is told after this at the earliest: a process that shares two cores with other tests may not run for seconds. */
const LEAST_PATIENCE_MS = 30_000;
/** What takes long on a quiet machine may take so many times longer beside other tests. */
const BESIDE_OTHERS = 5;

/** How many times slower this machine is than the one that the tests' times were chosen on; at least 1. */
const slowness = (): number => Math.max(1, Number(process.env[SLOWNESS_VARIABLE] ?? 1));

/** How long to wait for what takes at most `ms` on a quiet machine, before a test says that it hangs. */
export const patience = (ms = 0): number => Math.ceil(slowness() * Math.max(LEAST_PATIENCE_MS, BESIDE_OTHERS * ms));

/** A time that the product promises, on this machine: the time itself where the machine is not slow. */
export const promise = (ms: number): number => Math.ceil(slowness() * ms);

/** How many a limit of `limit` a minute lets pass at most of what was asked since `askedAt`: a slow machine may take more than a minute to ask. */
export const limitSince = (limit: number, askedAt: number): number =>
  limit * (1 + Math.floor((Date.now() - askedAt) / 60_000));

const FIRST_PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 500;

/** How long a poll rests between two looks: most things are there at once, and looking for what takes long must not slow it. */
export function* pauses(): Generator<number, never> {
  for (let ms = FIRST_PAUSE_MS; ; ms = Math.min(LONGEST_PAUSE_MS, 1.5 * ms)) yield ms;
}
