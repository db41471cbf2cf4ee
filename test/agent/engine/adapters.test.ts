/** LoRA adapters: which folders are adapters, and loading and unloading them by order. The engine is a mock. */
import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { AdapterDirectory } from '../../../agent/engine/adapter-directory.ts';
import { parseEngineTarget } from '../../../agent/engine/engine-address.ts';
import { EngineProbe } from '../../../agent/engine/engine-probe.ts';
import { ModelControl } from '../../../agent/engine/model-control.ts';
import type { ServedModel } from '../../../shared/lattice/node-record.ts';
import { type EngineOptions, startEngine } from '../../support/engine.ts';
import { temporaryDirectory } from '../../support/processes.ts';

const BASE = 'Qwen/Qwen3-8B';
const base = (id = BASE): ServedModel => ({ id, state: 'ready' });

async function folder(adapters: Record<string, unknown>): Promise<string> {
  const directory = await temporaryDirectory('otela-lora');
  for (const [name, config] of Object.entries(adapters)) {
    await mkdir(join(directory, name), { recursive: true });
    const text = typeof config === 'string' ? config : JSON.stringify(config);
    await writeFile(join(directory, name, 'adapter_config.json'), text);
  }
  return directory;
}

async function opened(directory: string) {
  const lines: string[] = [];
  const adapters = new AdapterDirectory({ directory, changed: () => {}, log: (line) => lines.push(line) });
  await adapters.scan();
  return { adapters, lines };
}

const names = (adapters: AdapterDirectory, ...bases: ServedModel[]) => adapters.models(bases).map(({ id }) => id);

test('folders with an adapter_config.json are adapters of the model that it names, by name or by path', async () => {
  const directory = await folder({
    law: { base_model_name_or_path: BASE },
    'ada/poems': { base_model_name_or_path: '/models/Qwen3-8B/' },
    other: { base_model_name_or_path: 'meta/Llama' },
    broken: '{',
    silent: { r: 8 },
    long: `{"base_model_name_or_path": "${BASE}", "x": "${'x'.repeat(300_000)}"}`,
  });
  const { adapters, lines } = await opened(directory);
  expect(adapters.models([base()])).toEqual([
    { id: 'ada/poems', state: 'on-disk', parent: BASE },
    { id: 'law', state: 'on-disk', parent: BASE },
  ]);
  expect(names(adapters, base('meta/Llama'))).toEqual(['other']);
  expect(names(adapters, { ...base('law-2'), parent: BASE })).toEqual([]); // an adapter has no adapters
  for (const name of ['broken', 'silent', 'long']) expect(lines.join()).toContain(`${name}: adapter_config.json`);
});

test('no name of an order leads out of the directory', async () => {
  const secret = await folder({ secret: { base_model_name_or_path: BASE } });
  const directory = await folder({ law: { base_model_name_or_path: BASE } });
  await symlink(join(secret, 'secret'), join(directory, 'link'));
  await mkdir(join(directory, '.hidden'));
  await writeFile(join(directory, '.hidden', 'adapter_config.json'), `{"base_model_name_or_path":"${BASE}"}`);
  const { adapters } = await opened(directory);
  expect(names(adapters, base())).toEqual(['law']);
  const evil = [
    '../secret',
    `${secret}/secret`,
    'law/../../secret',
    'link',
    '.hidden',
    'http://evil.example/x',
    '',
    '.',
  ];
  for (const name of [...evil, 'constructor', '__proto__']) expect(adapters.find(name, [base()]), name).toBeUndefined();
});

test('a directory that every user can write is not used', async () => {
  const directory = await folder({ law: { base_model_name_or_path: BASE } });
  await chmod(directory, 0o777);
  const { adapters, lines } = await opened(directory);
  expect([names(adapters, base()), lines.join()]).toEqual([
    [],
    expect.stringContaining('must not be able to write it'),
  ]);
});

test('as many adapters are published as the record has room for, and each can be loaded', async () => {
  const many = Object.fromEntries(
    Array.from({ length: 60 }, (_, n) => [`adapter-${String(n).padStart(3, '0')}`, { base_model_name_or_path: BASE }]),
  );
  const { adapters } = await opened(await folder(many));
  const shown = adapters.models([base()]);
  expect(JSON.stringify(shown).length).toBeLessThan(1_300);
  expect(shown.length).toBeGreaterThan(8);
  expect(adapters.find('adapter-059', [base()])?.name).toBe('adapter-059');
});

async function start(options: EngineOptions = {}) {
  const directory = await folder({
    'ada/law': { base_model_name_or_path: BASE },
    gone: { base_model_name_or_path: 'meta/Llama' },
  });
  const engine = await startEngine({ models: [BASE], lora: true, sleepMode: true, ...options });
  onTestFinished(() => engine.close());
  const address = parseEngineTarget({ url: engine.url });
  if (address === undefined) throw new Error('no address');
  const target = options.form === undefined ? address : { ...address, engine: options.form };
  const { adapters } = await opened(directory);
  const probe = new EngineProbe(target);
  onTestFinished(() => probe.close());
  const health = { everReady: true, answering: true, models: [base()], refusals: 0 };
  const look = async () => {
    const found = await probe.look();
    if (found.kind === 'models') health.models = found.models;
  };
  await look();
  const control = new ModelControl({
    engine: () => ({ health, target, lookSoon: () => {} }),
    adapters,
    running: () => 0,
    changed: () => {},
    now: () => performance.now(),
    log: () => {},
    callMs: 500,
    settleMs: 300,
  });
  control.see(health);
  const stateOf = async (id: string) => {
    await look();
    return control.describe(health.models).find((model) => model.id === id);
  };
  const load = (model: string) => control.load({ action: 'load', model }).act?.();
  const unload = async (model: string) => (await control.unload({ action: 'unload', model, drain_ms: 0 })).act?.();
  return { engine, control, directory, stateOf, load, unload };
}

test.each([
  ['vLLM', {}],
  ['SGLang', { form: 'sglang' }],
] as const)('%s loads an adapter by its name, lists it with its model, and unloads it', async (_, options) => {
  const { engine, stateOf, load, unload, directory } = await start(options);
  expect(await stateOf('ada/law')).toEqual({ id: 'ada/law', state: 'on-disk', parent: BASE });
  load('ada/law');
  await expect.poll(() => engine.adapters()).toEqual(['ada/law']);
  expect(await stateOf('ada/law')).toMatchObject({ state: 'ready', parent: BASE });
  const [asked] = engine.requests.filter(({ url }) => url.endsWith('/load_lora_adapter'));
  expect(JSON.parse(asked?.bodyStart ?? '')).toEqual({ lora_name: 'ada/law', lora_path: join(directory, 'ada/law') });
  await unload('ada/law');
  await expect.poll(() => engine.adapters()).toEqual([]);
  await expect.poll(() => stateOf('ada/law')).toMatchObject({ state: 'on-disk', load_ms: expect.any(Number) });
});

test('an order for an adapter of another model, or for a path, is refused, and the engine hears nothing of it', async () => {
  const { engine, control, directory } = await start();
  for (const model of ['gone', '../law', `${directory}/ada/law`, 'http://evil.example/x'])
    expect(() => control.load({ action: 'load', model })).toThrow(/the engine serves no/);
  expect(engine.requests.filter(({ method }) => method === 'POST')).toEqual([]);
});

test('an adapter of a sleeping engine is loaded after the wake', async () => {
  const { engine, control, stateOf, load } = await start();
  (await control.unload({ action: 'unload', model: BASE, sleep: 1, drain_ms: 0 })).act?.();
  await expect.poll(() => engine.sleepLevel()).toBe(1);
  load('ada/law');
  await expect.poll(() => engine.adapters()).toEqual(['ada/law']);
  expect([engine.sleepLevel(), (await stateOf(BASE))?.state]).toEqual([0, 'ready']);
});

test.each([
  [
    'was not started for adapters',
    { lora: false },
    /the engine loads no adapters: start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA/,
  ],
  [
    'confirms and does nothing',
    { behaviour: { management: 'ignored' } },
    /confirmed, but after 0.3 s it does not list/,
  ],
  ['hangs', { behaviour: { management: 'hangs' } }, /did not answer in time/],
  ['refuses', { behaviour: { management: 'refused' } }, /answered 500/],
] as const)('an engine that %s leaves the adapter on disk, and the node says why', async (_, options, reason) => {
  const { engine, stateOf, load } = await start(options);
  load('ada/law');
  await expect.poll(async () => (await stateOf('ada/law'))?.reason).toMatch(/^load: /);
  expect(await stateOf('ada/law')).toMatchObject({ state: 'on-disk', reason: expect.stringMatching(reason) });
  expect(engine.adapters()).toEqual([]);
});

test('an adapter that was deleted on disk is refused by the engine with its words', async () => {
  const { stateOf, load, directory } = await start();
  const { rm } = await import('node:fs/promises');
  await rm(join(directory, 'ada/law'), { recursive: true });
  load('ada/law');
  await expect.poll(async () => (await stateOf('ada/law'))?.reason).toMatch(/No adapter found/);
});
