import { expect, test } from 'vitest';
import { AttemptError, apiErrorFor } from '../../../shared/attempts/attempt-error.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { QueueEntry, type QueueEntryOptions } from '../../../shared/queue/queue-entry.ts';
import { BusyNodes } from '../../../shared/routing/busy-nodes.ts';

const NOW = 1_000_000;
const nodes = (...sessions: string[]) => sessions.map((session) => ({ session }));

function entry(more: Partial<QueueEntryOptions> = {}): QueueEntry {
  return new QueueEntry({
    busyNodes: new BusyNodes(),
    queues: true,
    isWorthWaiting: () => true,
    repeatable: () => true,
    retriesMax: 3,
    ...more,
  });
}

const failed = (code: AttemptError['code']) => apiErrorFor(new AttemptError(code, ''));
const nobody = new ApiError('no_capacity', 'nobody');

test('a request whose node is gone waits for another; whose engine failed in its hands is told so, unless its client has its beginning', () => {
  expect(entry().mayWait(failed('lost'))).toBe(true);
  expect(entry().mayWait(failed('engine_unreachable'))).toBe(true);
  expect(entry().mayWait(failed('engine_closed'))).toBe(false);
  const begun = entry({ begun: true });
  expect(begun.mayWait(failed('engine_closed'))).toBe(true);
  expect(begun.mayWait(failed('stall_timeout'))).toBe(false);
  expect(begun.mayWait(new ApiError('upstream_error', 'of its own'))).toBe(false);
});

test.each([[true], [false]])(
  'nodes that are not there count against nobody; those that are lost with it do (begun: %s)',
  (begun) => {
    const one = entry({ begun });
    for (let n = 0; n < 20; n++) one.onFailure(`n${n}`, 'not_accepted', NOW);
    for (let n = 0; n < 20; n++) one.onFailure(`n${n}`, 'engine_unreachable', NOW);
    expect([one.retriesLeft, one.mayWait(nobody)]).toEqual([3, true]);
    for (let n = 0; n < 4; n++) one.onFailure('n', 'lost', NOW);
    expect([one.retriesLeft, one.mayWait(nobody)]).toEqual([0, false]);
  },
);

test('a body that is on its way to one node cannot wait for another', () => {
  expect(entry({ repeatable: () => false }).mayWait(failed('not_accepted'))).toBe(false);
  expect(entry({ repeatable: () => false }).mayWait(nobody)).toBe(false);
});

test('no request waits without a queue, or without a chance', () => {
  expect(entry().mayWait(nobody)).toBe(true);
  expect(entry({ queues: false }).mayWait(nobody)).toBe(false);
  expect(entry({ isWorthWaiting: () => false }).mayWait(nobody)).toBe(false);
  expect(entry({ begun: true, isWorthWaiting: () => false }).mayWait(failed('lost'))).toBe(false);
});

test('a busy node is left alone for a moment, and remembered; if all are busy, no node is tried', () => {
  const one = entry();
  one.onFailure('a', 'overloaded', NOW);
  expect(one.selectCandidates(nodes('a', 'b'), NOW)).toEqual(nodes('b'));
  expect(one.selectCandidates(nodes('a'), NOW)).toEqual([]);
  expect(one.selectCandidates(nodes('a'), NOW + 300)).toEqual(nodes('a'));
  expect(one.busy).toEqual(['a']);
});

test('a turn tries the node that it names, and three at most; the next turn has its own three', () => {
  const one = entry();
  one.attempts = 2;
  one.begin({ session: 'c' });
  expect(one.selectCandidates(nodes('a', 'b', 'c'), NOW)).toEqual(nodes('c'));
  one.attempts = 4;
  expect(one.selectCandidates(nodes('a', 'b'), NOW)).toEqual(nodes('a', 'b'));
  one.attempts = 5;
  expect(one.selectCandidates(nodes('a', 'b'), NOW)).toEqual([]);
  one.begin({});
  expect(one.selectCandidates(nodes('a', 'b'), NOW)).toEqual(nodes('a', 'b'));
});
