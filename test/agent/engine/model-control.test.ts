/** Sleep and wake of an engine by order. The engine is a mock with vLLM's and SGLang's calls. */
import { setTimeout as delay } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { parseEngineTarget } from '../../../agent/engine/engine-address.ts';
import { EngineProbe } from '../../../agent/engine/engine-probe.ts';
import { ModelControl } from '../../../agent/engine/model-control.ts';
import type { ServedModel } from '../../../shared/lattice/node-record.ts';
import { type Engine, type EngineOptions, startEngine } from '../../support/engine.ts';

const MODEL = 'stand-in';
const ORDER = { action: 'unload', model: MODEL, drain_ms: 5_000 } as const;

interface World {
  engine: Engine;
  control: ModelControl;
  /** The models as they are published. */
  published(): ServedModel[];
  lines: string[];
  /** Requests at the engine. */
  load: { running: number };
  /** Reports to the control that the engine answers, or that it has gone. */
  answers(answering: boolean): void;
}

async function start(options: EngineOptions = {}, callMs = 10_000): Promise<World> {
  const engine = await startEngine({ models: [MODEL], sleepMode: true, ...options });
  onTestFinished(() => engine.close());
  const address = parseEngineTarget({ url: engine.url });
  if (address === undefined) throw new Error('no address');
  const probe = new EngineProbe(address);
  const look = await probe.look();
  await probe.close();
  if (look.kind !== 'models') throw new Error(look.kind);
  const kind = look.models[0]?.engine;
  const target = kind === undefined ? address : { ...address, engine: kind };
  const health = { everReady: true, answering: true, models: look.models, refusals: 0 };
  const load = { running: 0 };
  const lines: string[] = [];
  const control = new ModelControl({
    engine: () => ({ health, target, lookSoon: () => {} }),
    running: () => load.running,
    changed: () => {},
    now: () => performance.now(),
    log: (line) => lines.push(line),
    callMs,
    settleMs: 300,
  });
  const answers = (answering: boolean) => {
    health.answering = answering;
    control.see(health);
  };
  answers(true);
  return { engine, control, load, lines, answers, published: () => control.describe(look.models) };
}

const states = ({ published }: World) => published().map(({ state }) => state);

async function sleep(world: World, level: 1 | 2) {
  const { answer, act } = await world.control.unload({ ...ORDER, sleep: level });
  expect(answer).toEqual({ kind: 'model', model: MODEL, state: 'asleep' });
  act?.();
}

async function wake({ control }: World) {
  const { answer, act } = control.load({ action: 'load', model: MODEL });
  expect(answer).toEqual({ kind: 'model', model: MODEL, state: 'loading' });
  act?.();
}

test.each([
  ['vLLM', 1, {}],
  ['vLLM', 2, {}],
  ['SGLang', 1, { form: 'sglang', cpuBackup: true }],
  ['SGLang', 2, { form: 'sglang' }],
] as const)('%s sleeps at level %i, wakes with its weights, and the time is published', async (_, level, options) => {
  const world = await start(options);
  const { engine, control, published } = world;
  await sleep(world, level);
  expect(control.isAsleep).toBe(true);
  await expect.poll(() => engine.sleepLevel()).toBe(level);
  expect(states(world)).toEqual(['asleep']);
  expect(published()[0]?.load_ms).toBeUndefined();
  await wake(world);
  await expect.poll(() => states(world)).toEqual(['ready']);
  expect([engine.sleepLevel(), control.isAsleep]).toEqual([0, false]);
  const answer = await fetch(`${engine.url}/v1/completions`, {
    method: 'POST',
    body: JSON.stringify({ model: MODEL, prompt: 'a', max_tokens: 1 }),
  });
  expect(answer.status).toBe(200); // with lost weights the mock answers 503
  await sleep(world, level);
  expect(published()[0]?.load_ms).toBeGreaterThan(0);
});

test.each([
  ['vLLM without its sleep mode', {}, 1, /VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode/],
  ['SGLang without its memory saver', { form: 'sglang' }, 2, /--enable-memory-saver/],
] as const)('%s refuses and says what to change', async (_, options, level, reason) => {
  const world = await start({ sleepMode: false, ...options });
  await expect(world.control.unload({ ...ORDER, sleep: level })).rejects.toMatchObject({
    code: 'unsupported',
    message: expect.stringMatching(reason),
  });
  expect(states(world)).toEqual(['ready']);
});

test('SGLang without weights in memory refuses level 1', async () => {
  const world = await start({ form: 'sglang' });
  await expect(world.control.unload({ ...ORDER, sleep: 1 })).rejects.toThrow(
    /--enable-weights-cpu-backup: use level 2/,
  );
});

test('an order for a model that the engine does not serve, or without sleep, is refused', async () => {
  const { control } = await start();
  const unknown = { code: 'unknown_model' };
  await expect(control.unload({ ...ORDER, model: '../etc/passwd', sleep: 1 })).rejects.toMatchObject(unknown);
  expect(() => control.load({ action: 'load', model: 'http://evil/x' })).toThrow(/serves no http/);
  await expect(control.unload(ORDER)).rejects.toMatchObject({ code: 'unsupported' });
});

test('running requests finish first; if they last too long, the model stays loaded and says why', async () => {
  const world = await start();
  world.load.running = 1;
  await sleep(world, 1);
  expect(states(world)).toEqual(['asleep']); // it gets no new request
  await delay(100);
  expect(world.engine.sleepLevel()).toBe(0);
  world.load.running = 0;
  await expect.poll(() => world.engine.sleepLevel()).toBe(1);
  await wake(world);
  await expect.poll(() => states(world)).toEqual(['ready']);

  world.load.running = 2;
  (await world.control.unload({ ...ORDER, drain_ms: 60, sleep: 1 })).act?.();
  await expect.poll(() => states(world)).toEqual(['ready']);
  expect(world.published()[0]?.reason).toBe('sleep: 2 requests still ran after 60 ms');
  expect(world.engine.sleepLevel()).toBe(0);
});

test('a request that arrives while it drains keeps it awake', async () => {
  const world = await start();
  world.load.running = 1;
  await sleep(world, 1);
  await wake(world);
  await expect.poll(() => states(world)).toEqual(['ready']);
  expect(world.engine.sleepLevel()).toBe(0);
});

test.each([
  ['that confirms and does nothing', 'ignored', /sleep: the engine confirmed, but it does not sleep after 0.3 s/],
  ['that refuses', 'refused', /sleep: the engine's \/sleep\?level=1 answered 500/],
  ['that hangs', 'hangs', /sleep: the engine's \/sleep\?level=1 failed: it did not answer in time/],
] as const)('an engine %s stays loaded, and its node says why', async (_, management, reason) => {
  const world = await start({ behaviour: { management } }, 300);
  await sleep(world, 1);
  await expect.poll(() => states(world), { timeout: 15_000 }).toEqual(['ready']);
  expect(world.published()[0]?.reason).toMatch(reason);
});

test.each(['ignored', 'hangs', 'refused'] as const)(
  'an engine whose wake is %s stays asleep with the reason, and the next order tries again',
  async (management) => {
    const world = await start({}, 300);
    await sleep(world, 1);
    await expect.poll(() => world.engine.sleepLevel()).toBe(1);
    world.engine.control({ management });
    await wake(world);
    await expect.poll(() => world.published()[0]?.reason, { timeout: 15_000 }).toMatch(/^wake: /);
    expect(states(world)).toEqual(['asleep']);
    world.engine.control({});
    await wake(world);
    await expect.poll(() => states(world)).toEqual(['ready']);
    expect(world.published()[0]?.reason).toBeUndefined();
  },
);

test('SGLang cannot say that it does nothing: a woken engine without its weights stays asleep', async () => {
  const world = await start({ form: 'sglang' });
  await sleep(world, 2);
  await expect.poll(() => world.engine.sleepLevel()).toBe(2);
  world.engine.control({ management: 'ignored' });
  await wake(world);
  await expect.poll(() => world.published()[0]?.reason).toMatch(/^wake: /);
  expect(states(world)).toEqual(['asleep']);
});

test('an engine that dies while it wakes leaves nothing behind: the next one at its address is awake', async () => {
  const world = await start();
  await sleep(world, 1);
  await expect.poll(() => world.engine.sleepLevel()).toBe(1);
  world.engine.control({ managementMs: 60_000 });
  await wake(world);
  await expect.poll(() => world.engine.requests.some(({ url }) => url === '/wake_up')).toBe(true);
  world.answers(false);
  world.engine.hangUp();
  await expect.poll(() => world.lines.join()).toContain('the engine did not wake');
  world.engine.control({});
  expect(world.control.isAsleep).toBe(false);
});

test('an engine that another program put to sleep is found asleep, and its weights are read again', async () => {
  const world = await start();
  await fetch(`${world.engine.url}/sleep?level=2`, { method: 'POST' });
  world.answers(false);
  world.answers(true);
  await expect.poll(() => states(world)).toEqual(['asleep']);
  await wake(world);
  await expect.poll(() => states(world)).toEqual(['ready']);
});
