/**
 * Setup of every test file in Node: measures its CPU time, including its imports and the child processes that it waited
 * for.
 */
import { afterAll } from 'vitest';
import { endedChildrenSeconds } from './ended-children.ts';

declare module 'vitest' {
  interface TaskMeta {
    /** Of a test file. */
    cpuSeconds?: number;
  }
}

// If files share modules, a worker runs several of them, so each one is charged the time since the previous one.
const KEY = Symbol.for('otela.cpuSecondsBefore');
const kept = globalThis as { [KEY]?: number };

// biome-ignore lint/correctness/noEmptyPattern: vitest requires a destructured context, and no member is needed
afterAll(({}, suite) => {
  const { user, system } = process.cpuUsage();
  const used = (user + system) / 1_000_000 + endedChildrenSeconds();
  suite.meta.cpuSeconds = used - (kept[KEY] ?? 0);
  kept[KEY] = used;
});
