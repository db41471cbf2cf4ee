import { expect, test } from 'vitest';
import { HangCheck, type TokenProbeResult } from '../../../agent/engine/hang-check.ts';

/** Time moves by `pass`, with a tick each second; probes end when the test gives their result. */
function world() {
  const state = { now: 0, waiting: 0, counts: true, heardAt: Number.NEGATIVE_INFINITY };
  const probes: ((result: TokenProbeResult) => void)[] = [];
  const hangs: number[] = [];
  const check = new HangCheck({
    quietMs: 120_000,
    probeMs: 480_000,
    now: () => state.now,
    waiting: () => state.waiting,
    heardAt: () => state.heardAt,
    counts: () => state.counts,
    probe: () => new Promise((resolve) => probes.push(resolve)),
    onHang: (ms) => hangs.push(ms),
  });
  const pass = (ms: number) => {
    for (const end = state.now + ms; state.now < end; ) {
      state.now += 1_000;
      check.tick();
    }
  };
  const end = async (result: TokenProbeResult) => {
    probes.at(-1)?.(result);
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  };
  return { state, probes, hangs, pass, end };
}

test('an engine that takes requests and gives neither a byte nor the token hangs, and that is said once', async () => {
  const { state, probes, hangs, pass, end } = world();
  state.waiting = 1;
  pass(119_000);
  expect(probes).toHaveLength(0);
  pass(2_000);
  expect(probes).toHaveLength(1);
  pass(480_000);
  await end('silent');
  expect(hangs).toEqual([600_000]);
  pass(1_000_000);
  expect(probes).toHaveLength(1);
});

test('an engine without counters is never given up by silence alone: it may compute one long answer', async () => {
  const { state, probes, hangs, pass, end } = world();
  Object.assign(state, { waiting: 1, counts: false });
  for (let n = 1; n <= 3; n++) {
    pass(121_000);
    expect(probes).toHaveLength(n);
    pass(480_000);
    await end('silent');
  }
  expect(hangs).toEqual([]);
});

test('a slow prefill is no hang: a byte while the token is waited for, or a counter that grows, is a sign of life', async () => {
  const { state, probes, hangs, pass, end } = world();
  state.waiting = 1;
  pass(121_000);
  pass(400_000);
  state.heardAt = state.now;
  pass(80_000);
  await end('silent');
  expect(hangs).toEqual([]);
  pass(119_000);
  expect(probes).toHaveLength(1);
  pass(2_000);
  expect(probes).toHaveLength(2); // probed again after another silence
});

test('the token proves it alive, and an answer that says nothing of the scheduler proves nothing', async () => {
  for (const result of ['token', 'unknown'] as const) {
    const { state, probes, hangs, pass, end } = world();
    state.waiting = 3;
    pass(121_000);
    await end(result);
    pass(119_000);
    expect(probes).toHaveLength(1);
    expect(hangs).toEqual([]);
  }
});

test('an idle engine is asked for nothing, and a request that comes after hours of idleness has its time', () => {
  const { state, probes, pass } = world();
  state.heardAt = 0;
  pass(7_200_000);
  state.waiting = 1;
  pass(100_000);
  state.waiting = 0;
  pass(60_000);
  state.waiting = 1;
  pass(110_000);
  expect(probes).toHaveLength(0);
});
