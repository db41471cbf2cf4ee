/** Which functions a node loads, on which GPUs, and which one goes for another. With a real Python. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import type { FunctionOptions } from '../../../agent/batch/functions/function-options.ts';
import { FunctionProcess } from '../../../agent/batch/functions/function-process.ts';
import { type FunctionCode, LoadError } from '../../../agent/batch/functions/function-starter.ts';
import { LoadedFunctions } from '../../../agent/batch/functions/loaded-functions.ts';
import { temporaryDirectory } from '../../support/processes.ts';

const LIMITS = { python: 'python3', loadMs: 20_000, callMs: 20_000, memoryBytes: 2 ** 31 };
const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});

const PID =
  'import os\ndef load():\n    return [os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES")]\ndef infer(state, lines):\n    return [state for _ in lines]\n';

function codeOf(context: string, code = PID, more: Partial<FunctionOptions> = {}): FunctionCode {
  return {
    context,
    owner: 'project:lab',
    code,
    options: { requirements: [], weights: [], batch_size: 'auto', ...more },
  };
}

async function hostOf(loadedMax: number, gpus: readonly string[] = []) {
  const temporary = await temporaryDirectory('functions');
  const clock = { ms: 0 };
  const starter = {
    start: async ({ code, name }: FunctionCode, own: readonly string[] | undefined) => {
      const env = { PATH: process.env.PATH, ...(own === undefined ? {} : { CUDA_VISIBLE_DEVICES: own.join(',') }) };
      return new FunctionProcess({ limits: LIMITS, env, temporary, code, name, log: () => {} });
    },
    close: () => {},
  };
  const host = new LoadedFunctions({ starter, loadedMax, gpus, temporary, now: () => clock.ms, log: () => {} });
  ends.push(() => host.close());
  return { host, temporary, clock };
}

/** The process and its GPUs, as the function sees them. */
async function use(host: LoadedFunctions, code: FunctionCode): Promise<string> {
  const found = await host.acquire(code);
  const answer = await found.call(['0']);
  host.release(found);
  return answer.kind === 'outputs' ? String(answer.outputs[0]) : JSON.stringify(answer);
}

it('two leases of one function with one place take turns: each call gets its own answer', async () => {
  const { host } = await hostOf(1);
  const [a, b, c] = await Promise.all([1, 2, 3].map(() => use(host, codeOf('a'))));
  expect(a).toMatch(/^\[\d+, null\]$/);
  expect([b, c]).toEqual([a, a]);
});

it('two leases of one function with two places have a process each', async () => {
  const { host } = await hostOf(2);
  const both = await Promise.all([host.acquire(codeOf('a')), host.acquire(codeOf('a'))]);
  const answers = await Promise.all(both.map((one) => one.call(['0'])));
  expect(new Set(answers.map((one) => JSON.stringify(one))).size).toBe(2);
  expect(host.held.ready).toEqual(['a']);
  // A third one waits for either of them.
  const third = host.acquire(codeOf('a'));
  const [first] = both;
  if (first !== undefined) host.release(first);
  expect(await third).toBe(first);
});

it('each process has a GPU of the node to itself, or as many as its function declares', async () => {
  const { host } = await hostOf(4, ['GPU-0', 'GPU-1', 'MIG-2']);
  const gpusOf = async (code: FunctionCode) => JSON.parse(await use(host, code)) as [number, string];
  const held = await host.acquire(codeOf('a'));
  expect(await gpusOf(codeOf('b'))).toEqual([expect.any(Number), 'GPU-1']);
  expect(await gpusOf(codeOf('c', PID, { gpus: 0 }))).toEqual([expect.any(Number), '']);
  // It needs two GPUs, so the unused function b is unloaded.
  expect(await gpusOf(codeOf('d', PID, { gpus: 2 }))).toEqual([expect.any(Number), 'GPU-1,MIG-2']);
  expect(host.held.ready).not.toContain('b');
  await expect(host.acquire(codeOf('e', PID, { gpus: 4 }))).rejects.toThrow(
    'declares 4 GPUs for each process, and this node has 3',
  );
  host.release(held);
});

it('the GPU time of a call is that of all GPUs of its process, and the first call adds that of load()', async () => {
  const { host, clock } = await hostOf(2, ['GPU-0', 'GPU-1', 'GPU-2']);
  const loading = host.acquire(codeOf('a', PID, { gpus: 2 }));
  clock.ms += 500;
  const process = await loading;
  expect([host.gpuMs(process, 100), host.gpuMs(process, 100)]).toEqual([1_200, 200]);
  host.release(process);
});

it('a second process of one function does not unload another that was used a moment ago', async () => {
  const { host, clock } = await hostOf(2);
  const held = await host.acquire(codeOf('a'));
  await use(host, codeOf('b'));
  const second = host.acquire(codeOf('a'));
  expect(await Promise.race([second.then(() => 'loaded'), new Promise((r) => setTimeout(() => r('waits'), 300))])).toBe(
    'waits',
  );
  expect(host.held.ready).toEqual(['a', 'b']);
  clock.ms = 60_000;
  host.release(held);
  expect(await second).toBe(held);
  expect(await host.acquire(codeOf('a'))).not.toBe(held);
  expect(host.held.ready).toEqual(['a']);
});

it('functions stay loaded; the one that was used longest ago goes for a new one', async () => {
  const { host, clock } = await hostOf(2);
  const a = await use(host, codeOf('a'));
  clock.ms = 1;
  await use(host, codeOf('b'));
  clock.ms = 2;
  expect(await use(host, codeOf('a'))).toBe(a);
  clock.ms = 3;
  await use(host, codeOf('c'));
  expect(host.held.ready).toEqual(['a', 'c']);
  expect(await use(host, codeOf('a'))).toBe(a);
});

it('a function is not taken from a lease that uses it: the next one waits', async () => {
  const { host } = await hostOf(1);
  const held = await host.acquire(codeOf('a'));
  const next = host.acquire(codeOf('b'));
  expect(await Promise.race([next.then(() => 'b'), new Promise((r) => setTimeout(() => r('waits'), 300))])).toBe(
    'waits',
  );
  host.release(held);
  await next;
  expect(host.held.ready).toEqual(['b']);
});

it('functions rest after a failure, twice as long each time, and are loaded again after a crash', async () => {
  const { host, clock } = await hostOf(1);
  await expect(
    host.acquire(codeOf('bad', 'def load():\n    raise OSError(1)\ndef infer(s, l): return l')),
  ).rejects.toThrow(LoadError);
  host.setBroken('bad');
  expect(host.held.broken).toEqual(['bad']);
  clock.ms = 2_000;
  expect(host.held.broken).toEqual([]);
  host.setBroken('bad');
  clock.ms += 3_999;
  expect(host.held.broken).toEqual(['bad']);
  const first = await host.acquire(codeOf('a'));
  await first.stop();
  host.release(first);
  expect(await use(host, codeOf('a'))).toMatch(/^\[\d+, null\]$/);
});

it('directories that a killed agent left are removed by the next one; those of a living one stay', async () => {
  const temporary = await temporaryDirectory('functions');
  const dead = execFileSync('sh', ['-c', 'echo $$'], { encoding: 'utf8' }).trim();
  for (const pid of [dead, String(process.ppid)]) mkdirSync(join(temporary, `otela-function-${pid}-abc`));
  const starter = { start: () => Promise.reject(new Error('not used')), close: () => {} };
  const host = new LoadedFunctions({ starter, loadedMax: 1, gpus: [], temporary, now: () => 0, log: () => {} });
  await host.close();
  expect(existsSync(join(temporary, `otela-function-${dead}-abc`))).toBe(false);
  expect(existsSync(join(temporary, `otela-function-${process.ppid}-abc`))).toBe(true);
});

it('a process without calls stays loaded for as long as its function declares', async () => {
  const { host, clock } = await hostOf(3);
  await use(host, codeOf('short', PID, { keep_s: 1 }));
  await use(host, codeOf('usual'));
  await use(host, codeOf('long', PID, { keep_s: 3_600 }));
  clock.ms = 30_000;
  await expect.poll(() => host.held.ready, { timeout: 20_000 }).toEqual(['usual', 'long']);
  clock.ms = 700_000;
  await expect.poll(() => host.held.ready, { timeout: 20_000 }).toEqual(['long']);
}, 60_000);
