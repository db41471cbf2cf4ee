/** Records on their way from their node's object to others. */
import { env } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import type { Env } from '../../../../gateway/env.ts';
import type { ObjectContext } from '../../../../gateway/platform/object-context.ts';
import { UsageOutbox } from '../../../../gateway/usage/outbox/usage-outbox.ts';

test('an alarm that the storage did not take is set again, and what comes meanwhile sets no other', async () => {
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  const timers: { ms: number; ring: () => void }[] = [];
  const work: Promise<unknown>[] = [];
  let alarms = 0;
  const ctx = {
    storage: {
      setAlarm: async () => {
        if (++alarms === 1) throw new Error('the storage is overloaded');
      },
    },
    clock: { after: (ms: number, ring: () => void) => timers.push({ ms, ring }) },
    waitUntil: (one: Promise<unknown>) => work.push(one),
  } as unknown as ObjectContext;
  const outbox = new UsageOutbox(ctx, env as unknown as Env, 'node');
  for (let i = 0; i < 10; i++) outbox.schedule();
  await Promise.all(work);
  expect([alarms, timers.map(({ ms }) => ms)]).toEqual([1, [5_000]]);
  timers[0]?.ring();
  await Promise.all(work);
  expect([alarms, timers.length]).toEqual([2, 1]);
  said.mockRestore();
});
