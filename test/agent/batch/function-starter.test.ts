/** What a function declares about its weights, memory and time, and what its process gets of it. */
import { readdir } from 'node:fs/promises';
import { expect, it, onTestFinished } from 'vitest';
import type { FunctionOptions } from '../../../agent/batch/functions/function-options.ts';
import { readFunctionOptions } from '../../../agent/batch/functions/function-options.ts';
import { FunctionPackages } from '../../../agent/batch/functions/function-packages.ts';
import type { FunctionSandbox } from '../../../agent/batch/functions/function-sandbox.ts';
import { FunctionStarter, LoadError } from '../../../agent/batch/functions/function-starter.ts';
import { toolRunner } from '../../../agent/host/run-tool.ts';
import { temporaryDirectory } from '../../support/processes.ts';

const run = toolRunner({ PATH: process.env.PATH });
const log = () => {};
const NONE: FunctionOptions = { requirements: [], weights: [], batch_size: 'auto' };
const ENVIRON = 'import os\ndef infer(state, lines):\n    return [dict(os.environ) for _ in lines]\n';

async function starterOf(fails = false, sandbox?: FunctionSandbox) {
  const temporary = await temporaryDirectory('functions');
  const env = { PATH: process.env.PATH };
  const limits = { python: 'python3', loadMs: 20_000, callMs: 20_000, memoryBytes: 2 ** 30 };
  const bounds = { installMs: 1_000, memoryBytes: 2 ** 30 };
  const store = () => undefined;
  const packages = new FunctionPackages({
    directory: `${temporary}/packages`,
    env,
    run,
    limits: bounds,
    store,
    unpack: async () => {},
    log,
  });
  const pulled: string[] = [];
  const tokens: (string | undefined)[] = [];
  const pull = async (source: string, token: string | undefined) => {
    pulled.push(source);
    tokens.push(token);
    if (fails) throw new Error('the disk is full');
  };
  const none = () => Promise.reject(new Error('no packages are declared'));
  const weights = () => ({ directory: '/weights', pull, packages: none });
  const starter = new FunctionStarter({ limits, env, temporary, run, packages, sandbox, weights, log });
  const start = (options: Partial<FunctionOptions> | Error, gpus?: string[], secrets?: Record<string, string>) =>
    starter.start(
      {
        context: 'a',
        owner: 'project:lab',
        code: ENVIRON,
        options: options instanceof Error ? options : { ...NONE, ...options },
        ...(secrets && { secrets }),
      },
      gpus,
    );
  return { start, pulled, tokens, temporary };
}

it('weights of the hub are copied to the node before the process starts, and found there', async () => {
  const { start, pulled } = await starterOf();
  const made = await start({ weights: ['Qwen/Qwen3-8B@v1', 'gpt2'] }, ['MIG-1']);
  onTestFinished(() => made.stop());
  expect(pulled).toEqual(['hub:Qwen/Qwen3-8B@v1', 'hub:gpt2@main']);
  expect(await made.load()).toBeUndefined();
  const answer = await made.call(['0']);
  const environ: unknown = answer.kind === 'outputs' ? JSON.parse(answer.outputs[0] ?? '') : answer;
  expect(environ).toMatchObject({ HF_HUB_CACHE: '/weights', HF_HUB_OFFLINE: '1', CUDA_VISIBLE_DEVICES: 'MIG-1' });
});

it('the owner’s secrets are in the process that declares them, open the hub, and replace no variable of the agent', async () => {
  const { start, tokens } = await starterOf();
  const secrets = { HF_TOKEN: 'hf_mine', HOME: '/evil' };
  const made = await start({ weights: ['gpt2'], secrets: ['HF_TOKEN'] }, undefined, secrets);
  onTestFinished(() => made.stop());
  expect(await made.load()).toBeUndefined();
  const answer = await made.call(['0']);
  const environ = JSON.parse(answer.kind === 'outputs' ? (answer.outputs[0] ?? '') : '{}') as Record<string, string>;
  expect(environ.HF_TOKEN).toBe('hf_mine');
  expect(environ.HOME).not.toBe('/evil');
  expect(tokens).toEqual(['hf_mine']);
  const other = await start({});
  onTestFinished(() => other.stop());
  expect(await other.load()).toBeUndefined();
  expect(JSON.stringify(await other.call(['0']))).not.toContain('hf_mine');
});

it.each([
  ['a directory of the node', { weights: ['dir:/etc'] }, 'is not a repository of the hub'],
  ['a path out of the cache', { weights: ['../../etc'] }, 'is not a repository of the hub'],
  [
    'more memory than the node allows',
    { memory_bytes: 2 ** 31 },
    'declares 2048 MiB of memory, and this node allows 1024',
  ],
  ['what it cannot read', new Error('the function declares something'), 'the function declares something'],
])('a function that declares %s is not started', async (_, options, said) => {
  const { start, pulled } = await starterOf();
  const started = start(options);
  await expect(started).rejects.toThrow(LoadError);
  await expect(started).rejects.toThrow(said);
  expect(pulled).toEqual([]);
});

it('weights that cannot be copied are named', async () => {
  const { start } = await starterOf(true);
  await expect(start({ weights: ['gpt2'] })).rejects.toThrow(
    'the weights hub:gpt2@main could not be copied to this node: the disk is full',
  );
});

it('a process that cannot be started leaves no directory', async () => {
  const wrap = (): string[] => {
    throw new Error('no space left on device');
  };
  const { start, temporary } = await starterOf(false, { wrap } as unknown as FunctionSandbox);
  await expect(start({})).rejects.toThrow('no space left on device');
  expect(await readdir(temporary)).toEqual([]);
});

it('its time is the shorter of its limit and of the node’s', async () => {
  const { start } = await starterOf();
  const made = await start({ timeout_s: 0.001 });
  onTestFinished(() => made.stop());
  expect(await made.load()).toContain('load() took more than 0.001 s');
});

it('Python source declares nothing, and a bundle only what a node can read', () => {
  const bundle = (options: unknown) => JSON.stringify({ opentela_function: 1, options });
  expect(readFunctionOptions('def infer(state, lines): pass')).toEqual(NONE);
  expect(readFunctionOptions('{"opentela": 1}')).toEqual(NONE);
  expect(readFunctionOptions(bundle({ requirements: ['a==1'], gpus: 2, require: 'gpu=H100' }))).toEqual({
    ...NONE,
    requirements: ['a==1'],
    gpus: 2,
  });
  for (const wrong of [
    { requirements: ['--index-url=https://evil.example'] },
    { requirements: ['a @ file:///etc/passwd'] },
    { requirements: ['a\n--pre'] },
    { requirements: ['git+https://evil.example/a'] },
    { python: '3.12; rm' },
    { gpus: -1 },
    { batch_size: 101 },
    { timeout_s: 1e9 },
    { memory_bytes: '1' },
    { secrets: ['LD_PRELOAD'] },
    { secrets: ['PATH'] },
  ])
    expect(() => readFunctionOptions(bundle(wrong)), JSON.stringify(wrong)).toThrow(
      'declares something that this node',
    );
});
