import { expect, test } from 'vitest';
import { SLOWDOWN_MAX } from '../../../shared/timing/turn-clock.ts';
import { WaitClock } from '../../../shared/timing/wait-clock.ts';
import { VirtualLoop } from './virtual-loop.ts';

function begin(): { loop: VirtualLoop; patience: WaitClock } {
  const loop = new VirtualLoop();
  return { loop, patience: new WaitClock(loop) };
}

/** When a wait of `ms` ends, in the loop's time; undefined: it does not end within `withinMs`. */
function ending(ms: number, withinMs: number, live: (loop: VirtualLoop) => void): number | undefined {
  const { loop, patience: waitClock } = begin();
  let at: number | undefined;
  waitClock.after(ms, () => {
    at = loop.now();
  });
  while (at === undefined && loop.now() < withinMs) live(loop);
  return at;
}

test('on time, a wait is as long as it was set', () => {
  for (const ms of [1, 24, 25, 26, 200, 400, 1_000, 10_000]) expect(ending(ms, 20_000, (loop) => loop.run(1))).toBe(ms);
});

test('on time, the clock shows what the clock underneath shows', () => {
  const { loop, patience: waitClock } = begin();
  for (let step = 0; step < 5_000; step++) {
    loop.run(1);
    expect(loop.now() - waitClock.now()).toBeLessThan(1);
  }
});

test('turns that are a little late count in full', () => {
  const { loop, patience: waitClock } = begin();
  waitClock.now();
  for (let turn = 0; turn < 200; turn++) loop.stand(45);
  expect(waitClock.now()).toBe(9_000);
});

test('a process that is throttled to a fifth waits longer', () => {
  const at = ending(10_000, 100_000, (loop) => loop.starve(100, 20, 100));
  expect(at).toBeGreaterThan(20_000);
  expect(at).toBeLessThan(60_000);
});

test('a process whose every turn takes a second waits ten times as long, and not for ever', () => {
  const at = ending(10_000, 1_000_000, (loop) => loop.stand(1_000));
  expect(at).toBeGreaterThan(100_000);
  expect(at).toBeLessThanOrEqual(10_000 * SLOWDOWN_MAX + 2_000);
});

test('the time of a pause is no time that others had', () => {
  const { loop, patience: waitClock } = begin();
  let rang = false;
  waitClock.after(1_000, () => {
    rang = true;
  });
  loop.run(100);
  loop.stand(5_000);
  expect(rang).toBe(false);
  loop.run(600);
  expect(rang).toBe(false);
  loop.run(100);
  expect(rang).toBe(true);
});

test('a wait whose time is over in a late turn ends after the sockets were read', () => {
  const { loop, patience: waitClock } = begin();
  let rang = false;
  waitClock.after(1_000, () => {
    rang = true;
  });
  loop.run(990);
  loop.stand(2_000);
  expect(rang).toBe(false);
  loop.run(25);
  expect(rang).toBe(true);
});

test('a wait that is called off rings never, and an idle process is not woken', () => {
  const { loop, patience: waitClock } = begin();
  let rang = 0;
  const stop = waitClock.after(1_000, () => rang++);
  waitClock.after(500, () => rang++);
  loop.run(200);
  stop();
  stop();
  loop.run(10_000);
  expect(rang).toBe(1);
  expect(loop.timers).toBe(0);
});

test('time in which nothing was waited for counts in full', () => {
  const { loop, patience: waitClock } = begin();
  waitClock.now();
  loop.run(5_000);
  expect(loop.timers).toBe(0);
  loop.stand(60_000);
  expect(waitClock.now()).toBe(65_000);
});

test('where turns cannot be counted, all time counts', () => {
  const loop = new VirtualLoop();
  const waitClock = new WaitClock({ now: loop.now, after: loop.after, every: undefined });
  let rang = false;
  waitClock.after(1_000, () => {
    rang = true;
  });
  loop.stand(1_000);
  expect(rang).toBe(true);
  expect(waitClock.now()).toBe(1_000);
});
