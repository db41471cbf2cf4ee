import { expect, test } from 'vitest';
import { QueueEntry } from '../../../shared/queue/queue-entry.ts';
import { type QueuedWork, runQueued } from '../../../shared/queue/run-queued.ts';
import { BusyNodes } from '../../../shared/routing/busy-nodes.ts';

function request(more: Partial<QueuedWork<string>>): QueuedWork<string> {
  const means = { queues: true, isWorthWaiting: () => true, repeatable: () => true, retriesMax: 3 };
  const entry = new QueueEntry({ busyNodes: new BusyNodes(), ...means });
  return {
    model: 'm',
    waitMs: 1_000,
    entry,
    mustWaitFirst: () => true,
    wait: () => Promise.resolve({ kind: 'turn' }),
    tryNodes: () => Promise.resolve('answer'),
    clientDisconnected: () => false,
    now: () => 0,
    ...more,
  };
}

test('a request behind others waits before it tries', async () => {
  const seen: string[] = [];
  const wait = () => Promise.resolve({ kind: 'turn' as const }).finally(() => seen.push('wait'));
  const tryNodes = () => Promise.resolve(seen.push('try'));
  await runQueued({ ...request({ wait }), tryNodes });
  expect(seen).toEqual(['wait', 'try']);
});

test('a client that has left enters no line', async () => {
  let waits = 0;
  const wait = () => Promise.resolve({ kind: 'turn' as const }).finally(() => waits++);
  await expect(runQueued(request({ wait, clientDisconnected: () => true }))).rejects.toMatchObject({
    code: 'cancelled',
  });
  expect(waits).toBe(0);
});
