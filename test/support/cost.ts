/** Compares the cost of two pieces of code in one process, so that a slow or busy machine affects both sides. */
const RUNS = 5;
/** Minimum measured time. Shorter times are inaccurate, so cheaper code is repeated. */
const LEAST_MS = 5;

/**
 * CPU time in ms of one call, as the minimum of several runs: the first runs include compilation, and any run may
 * include a garbage collection.
 */
function cpuMs(act: () => unknown): number {
  const timed = (times: number) => {
    const before = process.cpuUsage();
    for (let n = 0; n < times; n++) act();
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1_000;
  };
  let times = 1;
  while (timed(times) < LEAST_MS) times *= 2;
  return Math.min(...Array.from({ length: RUNS }, () => timed(times))) / times;
}

/** The CPU time of `act` as a multiple of that of `control`. */
export function costBeside(act: () => unknown, control: () => unknown): number {
  return cpuMs(act) / cpuMs(control);
}

/** Reads each byte once, as a control for `costBeside`. */
export function readOnce(bytes: Uint8Array): number {
  let sum = 0;
  for (const byte of bytes) sum = (sum + byte) | 0;
  return sum;
}
