/** What memory costs that lay idle: on a machine shared with others its cache lines are theirs after some milliseconds. */
import { median } from './stats.ts';

const LINE_BYTES = 64;
const WORDS_PER_LINE = LINE_BYTES / Uint32Array.BYTES_PER_ELEMENT;
const TIMES = 31;
const NS_PER_MS = 1e6;

/** One cycle through all lines in random order, so that no prefetcher is ahead of it: each line holds where the next one is. */
function cycle(bytes: number, random: () => number): Uint32Array {
  const lines = bytes / LINE_BYTES;
  const order = Uint32Array.from({ length: lines }, (_, n) => n);
  for (let n = lines - 1; n > 0; n--) {
    const other = Math.floor(random() * (n + 1));
    [order[n], order[other]] = [order[other] ?? 0, order[n] ?? 0];
  }
  const memory = new Uint32Array(lines * WORDS_PER_LINE);
  for (let n = 0; n < lines; n++)
    memory[(order[n] ?? 0) * WORDS_PER_LINE] = (order[(n + 1) % lines] ?? 0) * WORDS_PER_LINE;
  return memory;
}

/** Median ns for a line of `bytes` that were all read `pauseMs` ago; the processor sleeps meanwhile. */
export async function lineNs(bytes: number, pauseMs: number, random: () => number): Promise<number> {
  const memory = cycle(bytes, random);
  const lines = bytes / LINE_BYTES;
  const took: number[] = [];
  for (let n = 0; n <= TIMES; n++) {
    if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
    const start = performance.now();
    let at = 0;
    for (let line = 0; line < lines; line++) at = memory[at] ?? 0;
    took.push(performance.now() - start + at); // at the end of a cycle `at` is 0 again; added so that the loop is not taken out
  }
  return (median(took.slice(1)) * NS_PER_MS) / lines;
}
