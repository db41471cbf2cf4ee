import { expect, it } from 'vitest';
import { testsOf } from '../support/changed.ts';
import { ROOT } from '../support/where.ts';

it('a change runs the tests of its room, a changed test itself, and the links of a changed page', () => {
  const changed = [
    'agent/life/lifecycle.ts',
    'shared/wire/frames.ts',
    'test/conformance/queue.test.ts',
    'docs/registry.md',
  ];
  expect(Object.fromEntries(testsOf(changed, ROOT))).toEqual({
    agent: ['test/agent/life/'],
    shared: ['test/shared/wire/'],
    conformance: ['test/conformance/queue.test.ts'],
    docs: ['test/docs/links.test.ts'],
  });
});

it('a room without tests of its own, and a test that was deleted, run nothing', () => {
  expect(testsOf(['gateway/app.ts', 'shared/nothing/x.ts', 'test/e2e/gone.test.ts'], ROOT).size).toBe(0);
});
