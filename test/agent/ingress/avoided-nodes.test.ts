import { expect, it } from 'vitest';
import { AvoidedNodes, SILENT_MS, UNREACHABLE_MS } from '../../../agent/ingress/avoided-nodes.ts';

it('a node is left alone for its time, and no longer where the clock is set back', () => {
  const now = 1e12;
  const avoided = new AvoidedNodes();
  avoided.add('a', now + SILENT_MS);
  avoided.add('b', now + UNREACHABLE_MS);
  expect([avoided.has('a', now), avoided.has('b', now)]).toEqual([true, true]);
  expect([avoided.has('a', now + SILENT_MS), avoided.has('b', now + SILENT_MS)]).toEqual([false, true]);
  expect(avoided.has('b', now - 600_000)).toBe(false);
});
