/** The order and the times of a drain; the test plays the drained parts. */
import { afterEach, expect, test, vi } from 'vitest';
import { drainPlan } from '../../../agent/life/drain-plan.ts';
import { endLife as leaveFor } from '../../../agent/life/ending.ts';
import { JobWatch, type SignalWarning } from '../../../agent/life/job-watch.ts';
import { Shutdown, type ShutdownParts } from '../../../agent/life/shutdown.ts';

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
  } as unknown as ShutdownParts;
  const shutdown = new Shutdown(parts, { atEnd: () => ({ tail: Buffer.from('last words'), kept: never }) }, () => {});
  const plan = drainPlan({ cause: 'signal', timeoutMs: undefined, killWaitMs: KILL_WAIT_MS, leftMs: undefined });
  const fate = new Promise<undefined>((resolve) => setTimeout(resolve, 2_000, undefined));
  void shutdown.drain(plan, 'SIGTERM', 'SIGTERM', { fate });
  await vi.advanceTimersByTimeAsync(2 * KILL_WAIT_MS);
  expect(leftAt).toHaveLength(1);
  expect(leftAt[0]).toBeLessThanOrEqual(KILL_WAIT_MS - 1_000);
});

test('a SIGTERM while the batch system lets the job run on is a warning: answers have until its end', async () => {
  vi.useFakeTimers();
  const from = Date.now();
  const plan = drainPlan({ cause: 'signal', timeoutMs: undefined, killWaitMs: KILL_WAIT_MS, leftMs: undefined });
  const leave = async (warning: Promise<SignalWarning | undefined>, answerMs: number) => {
    const reasons: (string | undefined)[] = [];
    const began = Date.now();
    const parts = {
      sessions: {
        inFlight: 1,
        down: (reason?: string) => void reasons.push(reason),
        drain: () => new Promise((resolve) => setTimeout(resolve, answerMs)),
        leave: async () => {},
      },
    } as unknown as ShutdownParts;
    await new Shutdown(parts, { atEnd: () => ({ tail: undefined, kept: Promise.resolve() }) }, () => {}).drain(
      plan,
      'SIGTERM',
      'SIGTERM',
      { warning },
    );
    return { ms: Date.now() - began, reasons };
  };
  const warned = { plan: { drainMs: 83_000, graceMs: 10_000 }, reason: 'time-limit' };
  const told = (value: SignalWarning | undefined) =>
    new Promise<SignalWarning | undefined>((r) => setTimeout(r, 2_000, value));
  const runs = Promise.all([
    leave(told(warned), 60_000),
    leave(told(warned), 600_000),
    leave(told(undefined), 600_000),
    leave(never, 600_000),
    leave(told(warned), 500),
  ]);
  await vi.advanceTimersByTimeAsync(120_000);
  const [answered, cut, ends, silent, quick] = await runs;
  expect(answered.ms).toBe(60_000);
  expect(answered.reasons).toEqual(['SIGTERM', 'time-limit', undefined]);
  expect(cut.ms).toBe(85_000);
  expect([ends.ms, silent.ms]).toEqual([plan.drainMs, plan.drainMs]);
  expect(quick.ms).toBe(500);
  expect(Date.now() - from).toBe(120_000);
});

test.each([
  ['SIGTERM', 'RUNNING', 85_000, 'time-limit'],
  ['SIGTERM', 'RUNNING PreemptTime=2026-11-26T18:00:00', 85_000, 'preempted'],
  ['SIGTERM', 'COMPLETING', undefined, undefined],
  ['SIGINT', 'RUNNING', undefined, undefined],
])('%s with 95 s of a job left that is %s: requests have %s, because of %s', async (why, state, drainMs, reason) => {
  vi.useFakeTimers({ toFake: ['Date'] });
  const ends = new Date(Date.now() + 95_000).toISOString().slice(0, 19);
  const job = new JobWatch({
    config: { drainBeforeMs: undefined, drainTimeoutMs: undefined, endsAt: undefined },
    env: { SLURM_JOB_ID: '7' },
    run: async () => ({ ok: true, stdout: `JobId=7 JobState=${state} EndTime=${ends}` }),
    onChange: () => {},
    onDue: () => {},
    log: () => {},
  });
  const drain = vi.fn((..._: Parameters<Shutdown['drain']>) => Promise.resolve());
  const parts = { job, shutdown: { drain } as unknown as Shutdown, registers: true, signalled: () => true };
  expect(await leaveFor({ kind: 'drain', cause: 'signal', why }, { ...parts, stderr: process.stderr })).toBe(143);
  const warned = await drain.mock.calls[0]?.[3]?.warning;
  expect(warned?.reason).toBe(reason);
  if (drainMs === undefined) expect(warned).toBeUndefined();
  // Slurm's times are whole seconds.
  else expect(Math.abs((warned?.plan.drainMs ?? 0) - drainMs)).toBeLessThan(1_001);
});
