/** What a piece of code costs beside another in the same process: a bound that a slow machine, or a busy one, moves on both sides. */
const RUNS = 5;
/** Less is not measured well: what costs less is repeated. */
const LEAST_MS = 5;

/** CPU time in ms of one call, by the cheapest of some runs: the first ones are compiled, and a collection falls into one of them. */
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

/** How many times as much CPU time `act` takes as `control`. */
export function costBeside(act: () => unknown, control: () => unknown): number {
  return cpuMs(act) / cpuMs(control);
}

/** One look at each byte. */
export function readOnce(bytes: Uint8Array): number {
  let sum = 0;
  for (const byte of bytes) sum = (sum + byte) | 0;
  return sum;
}
