/**
 * Setup of every test file in Node: measures its CPU time, including its imports and the child processes that it waited
 * for.
 */
import { afterAll } from 'vitest';
import { endedChildrenSeconds } from './ended-children.ts';

declare module 'vitest' {
  interface TaskMeta {
    /** CPU seconds of a test file. */
    cpuSeconds?: number;
  }
}

// Key of the CPU time at the end of the previous file: a worker runs several files if they share modules.
const KEY = Symbol.for('otela.cpuSecondsBefore');
const kept = globalThis as { [KEY]?: number };

// biome-ignore lint/correctness/noEmptyPattern: vitest requires a destructured context, and no member is needed
afterAll(({}, suite) => {
  const { user, system } = process.cpuUsage();
  const used = (user + system) / 1_000_000 + endedChildrenSeconds();
  suite.meta.cpuSeconds = used - (kept[KEY] ?? 0);
  kept[KEY] = used;
});
