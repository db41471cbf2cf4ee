/** Following a live network, slot by slot: its behavior when the network, the load or the change itself goes wrong. */
import { expect, test } from 'vitest';
import { timelineOf } from '../../../scheduler/follow/slot-records.ts';
import { KINDS, MODEL, SLOT_S, World } from './world.ts';

/** Mostly prompts, mostly answers: requests of a slot, `[answers, prompts]`. */
const PROMPTS = [120, 1_200];
const ANSWERS = [1_200, 120];

const more = ([a, b]: readonly [number, number]) => a > b;

test('from nothing it starts what is asked for, gives kinds to the replicas that suit them, and stays', async () => {
  const world = new World();
  world.arrivals = () => PROMPTS;
  await world.run(2);
  expect(more(world.running)).toBe(true);
  const before = world.running;
  await world.run(6);
  expect(world.running).toEqual(before);
  const fast = world.network.deployed.filter(({ tp }) => tp === 2).map(({ session }) => session);
  const toFast = world.published.weights.filter(
    ({ kind, session }) => kind === 'prompts' && fast.includes(session ?? ''),
  );
  expect(toFast.reduce((sum, { weight }) => sum + weight, 0)).toBeGreaterThan(0.9);
  expect(world.last).toMatchObject({ model: MODEL, decision: 'keep', misjudged: 0.04, requests: PROMPTS });
});

test('from nothing it starts all that fits, even if several times more is asked for', async () => {
  const world = new World();
  world.arrivals = () => PROMPTS.map((one) => 5 * one);
  await world.run(2);
  expect(world.running[0] + world.running[1]).toBe(4);
});

test('a mix that changes for good changes the replicas; a burst of one slot does not', async () => {
  const world = new World();
  const start = Math.floor(world.now / (SLOT_S * 1e3));
  world.arrivals = (slot) => (slot < start + 20 ? PROMPTS : ANSWERS);
  await world.run(12);
  const before = world.running;
  const steady = world.arrivals;
  world.arrivals = (slot) => (slot === start + 12 ? PROMPTS.map((one) => 10 * one) : steady(slot));
  await world.run(4);
  expect(world.running).toEqual(before);
  world.arrivals = steady;
  await world.run(14);
  expect(more(world.running)).toBe(false);
  expect(world.text).toMatch(/switch: .*request seconds in 5 slots, including the switch; the current layout costs/);
});

test('a node that is lost, or gained, is planned with in the next slots', async () => {
  const world = new World();
  world.arrivals = () => [600, 1_200];
  await world.run(4);
  expect(world.running[0] + world.running[1]).toBe(4);
  world.network.agents.shift();
  await world.run(5);
  expect(world.running[0] + world.running[1]).toBe(3);
  for (const _ of [1, 2]) world.network.join('A100');
  world.arrivals = () => [1_200, 2_000];
  await world.run(6);
  expect(world.running[0] + world.running[1]).toBe(5);
});

test('a gateway that does not answer leaves everything running, and a gap in the counts', async () => {
  const world = new World();
  await world.run(4);
  const before = world.running;
  world.down = true;
  await expect(world.run(1)).rejects.toThrow('does not answer');
  world.down = false;
  await world.run(3);
  expect(world.running).toEqual(before);
  expect(world.last?.expected.mean.flat().every(Number.isFinite)).toBe(true);
});

test('a slot without a request has no latency, and one that was not counted is no idle one', async () => {
  const world = new World();
  await world.run(4);
  world.arrivals = () => [0, 0];
  await world.run(1);
  const told = world.records.slice(-1);
  expect(timelineOf(told)).toMatchObject({ data: [{ slots: [{ requests: [0, 0], p50_ms: null, p99_ms: null }] }] });
  const unseen = told.map((one) => ({ ...one, requests: [Number.NaN, 3] }));
  expect(timelineOf(unseen)).toMatchObject({ data: [{ slots: [{ requests: [null, 3] }] }] });
});

test('a gateway whose records of two days take it too long is asked for less, until it answers', async () => {
  const world = new World();
  world.slowAboveS = 2 * 3_600;
  for (let slot = 0; slot < 5; slot++) await world.run(1).catch(() => {});
  expect(world.last).toMatchObject({ model: MODEL });
});

test('hours without a request, and a kind that vanishes and comes back, change nothing by themselves', async () => {
  const world = new World();
  await world.run(4);
  const before = world.running;
  world.arrivals = () => [0, 0];
  await world.run(8);
  // The first request after a quiet night is sent to the replica that answers it soonest.
  for (const { name } of KINDS)
    expect(world.published.weights.some(({ kind, weight }) => kind === name && weight > 0.2)).toBe(true);
  world.arrivals = () => [0, 600];
  await world.run(8);
  expect(world.running).toEqual(before);
  // The absent kind still has a node.
  const answers = world.published.weights.filter(({ kind }) => kind === 'answers');
  expect(answers.some(({ weight }) => weight > 0)).toBe(true);
});

test('a model whose starts fail is planned again in each slot, until its replicas run', async () => {
  const world = new World();
  world.network.failing = true;
  world.arrivals = () => PROMPTS;
  await world.run(6);
  expect(world.plan).toMatchObject([{ model: MODEL, gpu: 'A100', tp: 2 }, {}]);
  expect(world.network.deployed).toEqual([]);
  world.network.failing = false;
  await world.run(4);
  expect(more(world.running)).toBe(true);
});

test('a change that was begun goes on in the next slot, without a second confirmation', async () => {
  const world = new World();
  world.arrivals = () => PROMPTS;
  await world.run(8);
  const [before] = world.running;
  world.network.wave = 1;
  world.arrivals = () => ANSWERS;
  await world.run(20);
  const [after] = world.running;
  expect(before - after).toBeGreaterThan(1);
  const decisions = world.records.slice(8).map(({ decision }) => decision);
  const first = decisions.indexOf('switch');
  expect(decisions.slice(first, first + before - after)).toEqual(
    Array.from({ length: before - after }, () => 'switch'),
  );
});

test('an operator’s pin is planned and kept; one that fits nowhere is said and left out', async () => {
  const pin = {
    model: MODEL,
    replicas: [
      { tp: 2, pp: 1, count: 1 },
      { tp: 1, pp: 2, count: 3 },
    ],
  };
  const world = new World({ pins: [pin] });
  world.arrivals = () => PROMPTS;
  await world.run(8);
  expect(world.running).toEqual([1, 3]);
  const wide = new World({ pins: [{ model: MODEL, replicas: [{ tp: 2, pp: 1, count: 9 }] }] });
  await wide.run(3);
  expect(wide.text).toContain(`the pin of ${MODEL} does not fit`);
});

test('without --publish it publishes nothing and says what it would publish', async () => {
  const world = new World({ publish: false });
  world.published = { kinds: [], weights: [] };
  await world.run(4);
  expect(world.published).toEqual({ kinds: [], weights: [] });
  expect(world.text).toMatch(/would publish kinds of .*prompt/);
  expect(world.records[0]?.changes.join()).toMatch(/would change .* 0 to \d/);
});

test('kinds are learned from what was recorded, and published with names that stay', async () => {
  const world = new World();
  world.published = { kinds: [], weights: [] };
  await world.run(3);
  const names = (world.published.kinds as { name: string }[]).map(({ name }) => name);
  expect(names.toSorted()).toEqual(['long prompt, short answer', 'short prompt, long answer']);
  await world.run(70);
  expect((world.published.kinds as { name: string }[]).map(({ name }) => name)).toEqual(names);
});

test('kinds that moved are published with the shares that replicas have of them, though these stay as they were', async () => {
  const spreads = [1, 2].map((pp) => ({ tp: 3 - pp, pp, count: 2 }));
  const world = new World({ pins: [{ model: MODEL, replicas: spreads }] });
  await world.run(10);
  const { kinds, weights } = structuredClone(world.published);
  world.lengths = world.lengths.map(({ input, output, requests }) => ({ input: 1.5 * input, output, requests }));
  await world.run(60);
  expect(world.published.kinds).not.toEqual(kinds);
  expect(world.published.weights).toEqual(weights);
});

test('an earlier run’s history is read: a flip that came at this time of the last two days is met before it comes', async () => {
  const season = 20;
  const at = Math.floor(Date.parse('2026-01-01T10:00:00Z') / (SLOT_S * 1e3));
  const mix = (slot: number) => ((((slot - at) % season) + season) % season < 10 ? PROMPTS : ANSWERS);
  const kinds = ['answers', 'prompts'];
  const before = Array.from({ length: 3 * season }, (_, i) => at - 3 * season + i).map((slot) => {
    const noise = Math.round(20 * Math.sin(slot * 12.9898));
    const requests = mix(slot).map((one) => one + noise);
    return { at: new Date(slot * SLOT_S * 1e3).toISOString(), slot_s: SLOT_S, model: MODEL, kinds, requests };
  });
  const world = new World({ season, switchS: 30 }, before);
  world.arrivals = (slot) => (slot < at ? undefined : mix(slot));
  await world.run(10);
  const change = world.records.find(({ changes, replicas }) => changes.length > 0 && Object.keys(replicas).length > 0);
  const ordered = Date.parse(change?.expected.from ?? '') / (SLOT_S * 1e3);
  expect(ordered).toBeLessThan(at + 10);
  expect(ordered).toBeGreaterThan(at + 4);
  expect(more(world.running)).toBe(false);
});
