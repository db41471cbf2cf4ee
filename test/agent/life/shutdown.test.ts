/** The order and the times of a drain; the test plays the drained parts. */
import { afterEach, expect, test, vi } from 'vitest';
import type { AgentParts } from '../../../agent/life/agent-parts.ts';
import { drainPlan } from '../../../agent/life/drain-plan.ts';
import { AgentEnding } from '../../../agent/life/ending/agent-ending.ts';
import type { SignalWarning } from '../../../agent/life/ending/ending-state.ts';
import { JobWatch } from '../../../agent/life/job-watch.ts';

const KILL_WAIT_MS = 30_000;
const never = new Promise<never>(() => {});

afterEach(() => void vi.useRealTimers());

type LifeOptions = ConstructorParameters<typeof AgentEnding>[0];

/** An agent that has joined. */
function lifeOf(parts: unknown, options: Pick<LifeOptions, 'job'> & Partial<LifeOptions>): AgentEnding {
  const life = new AgentEnding({
    parts: parts as AgentParts,
    logs: { atEnd: () => ({ tail: undefined, kept: Promise.resolve() }) },
    registers: true,
    stderr: process.stderr,
    log: () => {},
    ...options,
  });
  life.send({ kind: 'joined' });
  return life;
}

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
  };
  const plan = drainPlan({ cause: 'signal', timeoutMs: undefined, killWaitMs: KILL_WAIT_MS, leftMs: undefined });
  const fate = new Promise<undefined>((resolve) => setTimeout(resolve, 2_000, undefined));
  const job = { plan: () => plan, drainReason: () => 'SIGTERM', fate: () => fate, warning: async () => undefined };
  const logs = { atEnd: () => ({ tail: Buffer.from('last words'), kept: never }) };
  lifeOf(parts, { job, logs }).end({ kind: 'drain', cause: 'signal', why: 'SIGTERM' });
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
    };
    const fate = async () => undefined;
    const life = lifeOf(parts, {
      job: { plan: () => plan, drainReason: () => 'SIGTERM', fate, warning: () => warning },
    });
    life.end({ kind: 'drain', cause: 'signal', why: 'SIGTERM' });
    await life.exit;
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
  const asked = vi.spyOn(job, 'warning');
  const logged: string[] = [];
  const reasons: (string | undefined)[] = [];
  const parts = {
    sessions: {
      inFlight: 1,
      down: (published?: string) => void reasons.push(published),
      drain: () => never,
      leave: async () => {},
    },
  };
  const life = lifeOf(parts, { job, log: (line) => logged.push(line) });
  const signal = why === 'SIGINT' ? 'SIGINT' : 'SIGTERM';
  life.send({ kind: 'signal', signal, at: 0 });
  const warned: SignalWarning | undefined = await asked.mock.results[0]?.value;
  await Promise.resolve();
  expect(warned?.reason).toBe(reason);
  // Slurm's times are whole seconds.
  if (drainMs !== undefined) expect(Math.abs((warned?.plan.drainMs ?? 0) - drainMs)).toBeLessThan(1_001);
  expect(logged.filter((line) => line.includes('lets the job continue'))).toHaveLength(drainMs === undefined ? 0 : 1);
  expect(reasons.includes(reason)).toBe(reason !== undefined);
  life.send({ kind: 'signal', signal, at: 5_000 });
  expect(await life.exit).toBe(143);
});
