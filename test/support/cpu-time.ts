/** Setup of every file in Node: the CPU time that it used, with its imports and the processes that it waited for. */
import { afterAll } from 'vitest';
import { endedChildrenSeconds } from './ended-children.ts';

declare module 'vitest' {
  interface TaskMeta {
    /** Of a test file. */
    cpuSeconds?: number;
  }
}

// A worker runs several files where they share modules: each has what was used since the one before it.
const KEY = Symbol.for('otela.cpuSecondsBefore');
const kept = globalThis as { [KEY]?: number };

// biome-ignore lint/correctness/noEmptyPattern: vitest wants the context taken apart, and nothing of it is needed
afterAll(({}, suite) => {
  const { user, system } = process.cpuUsage();
  const used = (user + system) / 1_000_000 + endedChildrenSeconds();
  suite.meta.cpuSeconds = used - (kept[KEY] ?? 0);
  kept[KEY] = used;
});
