/**
 * Setup of every test file in Node. Files of a project may share loaded modules. A file that replaces modules or the
 * clock loads its own, and the next file loads them again: the agent's wait clock, begun on a fake clock, never rings.
 */
import { readFileSync } from 'node:fs';
import { afterAll, expect, vi } from 'vitest';

const { testPath } = expect.getState();
if (testPath !== undefined && /\bvi\.(mock|useFakeTimers|resetModules)\(/.test(readFileSync(testPath, 'utf8'))) {
  vi.resetModules();
  afterAll(() => {
    vi.useRealTimers();
    vi.resetModules();
  });
}
