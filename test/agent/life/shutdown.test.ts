/** The order and the times of a drain; what is drained are the test's stand-ins. */
import { afterEach, expect, test, vi } from 'vitest';
import { drainPlan } from '../../../agent/life/drain-plan.ts';
import { type Parts, Shutdown } from '../../../agent/life/shutdown.ts';

const KILL_WAIT_MS = 30_000;
const never = new Promise<never>(() => {});

afterEach(() => void vi.useRealTimers());

test('LEFT goes out before Slurm kills, though no request ends and no gateway takes lines or a log', async () => {
  vi.useFakeTimers();
  const from = Date.now();
  const leftAt: number[] = [];
  const parts = {
    sessions: {
      inFlight: 1,
      current: { id: 'a' },
      down: () => {},
      drain: () => never,
      leaveLogTail: () => never,
      leave: async () => void leftAt.push(Date.now() - from),
    },
    batches: { drain: () => never, close: async () => {} },
  } as unknown as Parts;
  const shutdown = new Shutdown(parts, { atEnd: () => Buffer.from('last words') }, () => {});
  const plan = drainPlan({ cause: 'signal', timeoutMs: undefined, killWaitMs: KILL_WAIT_MS, leftMs: undefined });
  const fate = new Promise<undefined>((resolve) => setTimeout(resolve, 2_000, undefined));
  void shutdown.drain(plan, 'SIGTERM', 'SIGTERM', fate);
  await vi.advanceTimersByTimeAsync(2 * KILL_WAIT_MS);
  expect(leftAt).toHaveLength(1);
  expect(leftAt[0]).toBeLessThanOrEqual(KILL_WAIT_MS - 1_000);
});
