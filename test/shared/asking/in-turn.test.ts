import { expect, test } from 'vitest';
import { inTurn, type Turnwise } from '../../../shared/asking/in-turn.ts';
import { Waiter } from '../../../shared/asking/waiter.ts';
import { BusyNodes } from '../../../shared/routing/busy.ts';

function request(more: Partial<Turnwise<string>>): Turnwise<string> {
  const means = { queues: true, hopes: () => true, repeatable: () => true, retriesMax: 3 };
  const waiter = new Waiter({ busyNodes: new BusyNodes(), ...means });
  return {
    model: 'm',
    waitMs: 1_000,
    waiter,
    behind: () => true,
    wait: () => Promise.resolve({ kind: 'turn' }),
    tryNodes: () => Promise.resolve('answer'),
    left: () => false,
    now: () => 0,
    ...more,
  };
}

test('who stands behind others waits before it tries', async () => {
  const seen: string[] = [];
  const wait = () => Promise.resolve({ kind: 'turn' as const }).finally(() => seen.push('wait'));
  const tryNodes = () => Promise.resolve(seen.push('try'));
  await inTurn({ ...request({ wait }), tryNodes });
  expect(seen).toEqual(['wait', 'try']);
});

test('a client that has left enters no line', async () => {
  let waits = 0;
  const wait = () => Promise.resolve({ kind: 'turn' as const }).finally(() => waits++);
  await expect(inTurn(request({ wait, left: () => true }))).rejects.toMatchObject({ code: 'cancelled' });
  expect(waits).toBe(0);
});
