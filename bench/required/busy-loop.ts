/**
 * `chrt -i 0 taskset -c CORE node bench/required/busy-loop.ts`: keeps one core from idling. Any other program preempts
 * it, because its scheduling class is idle. Ends with its parent, or after ten minutes.
 */
const LIFE_MS = 600_000;
const SPINS = 100_000;

/** Newer than the types. It leaves the other thread of a physical core undisturbed. */
const { pause } = Atomics as typeof Atomics & { pause(): void };
const parent = process.ppid;
const end = performance.now() + LIFE_MS;
console.log('busy loop ready');
while (performance.now() < end && process.ppid === parent) for (let n = 0; n < SPINS; n++) pause();
