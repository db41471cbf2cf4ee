import { expect, test } from 'vitest';
import { DemandNotifier } from '../../../gateway/factory/demand-notifier.ts';

test('what changes while it is being told is told again at once: a last client that left is not wanted for twelve more seconds', async () => {
  let [now, waiting] = [0, 1];
  const rings: (() => void)[] = [];
  const told: number[] = [];
  const answered: (() => void)[] = [];
  const teller = new DemandNotifier({
    env: { FACTORY: { getByName: () => ({}) } } as unknown as ConstructorParameters<typeof DemandNotifier>[0]['env'],
    clock: {
      now: () => now,
      after: (ms, due) => {
        rings.push(() => {
          now += ms;
          due();
        });
        return () => {};
      },
    },
    tell: () => {
      told.push(waiting);
      return new Promise((resolve) => answered.push(() => resolve(true)));
    },
    lasts: () => waiting > 0,
  });
  teller.news();
  rings.shift()?.();
  waiting = 0;
  teller.news();
  answered[0]?.();
  await new Promise((resolve) => setTimeout(resolve, 0));
  rings.shift()?.();
  expect([told, now]).toEqual([[1, 0], 100]);
});
