/** `otela up --fetch`: what happens if this machine cannot send the weights, or must not any more. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, expect, it, vi } from 'vitest';
import type { Host } from '../../up/host/host.ts';
import { fetchWeights, sendSnapshot } from '../../up/job/fetch-weights.ts';
import { UpError } from '../../up/up-error.ts';
import { temporaryDirectory } from '../support/processes.ts';

afterEach(() => vi.unstubAllEnvs());

/** @param send takes the stream, as ssh does */
function fetching(send: (stream: Readable) => Promise<unknown>, signal = new AbortController().signal) {
  const spawned: string[] = [];
  const host = {
    host: 'cluster',
    spawn: (script: string) => {
      spawned.push(script);
      throw new Error('not expected');
    },
    send: async (_: string, stream: Readable) => void (await send(stream)),
  } as unknown as Host;
  return { spawned, fetch: { host, agent: ['agent'], model: 'org/m', setup: [], step: () => {}, signal } };
}

async function snapshot(): Promise<string> {
  const cache = await temporaryDirectory('otela-hub');
  const model = join(cache, 'models--org--m');
  for (const directory of ['refs', 'snapshots/abc']) await mkdir(join(model, directory), { recursive: true });
  await writeFile(join(model, 'refs/main'), 'abc');
  await writeFile(join(model, 'snapshots/abc/weights'), Buffer.alloc(4 * 2 ** 20));
  return join(model, 'snapshots/abc');
}

it('the weights travel as one archive', async () => {
  let length = 0;
  const { fetch } = fetching(async (stream) => {
    for await (const piece of stream) length += piece.length;
  });
  await sendSnapshot(fetch, await snapshot());
  expect(length).toBeGreaterThan(4 * 2 ** 20);
});

it('a machine without tar says so, and the host gets an end', async () => {
  const path = await snapshot();
  vi.stubEnv('PATH', '/nonexistent');
  const { fetch } = fetching((stream) => text(stream));
  await expect(sendSnapshot(fetch, path)).rejects.toThrow(
    /tar does not run on this machine: .*ENOENT[\s\S]*Install tar/,
  );
});

it('a host that takes nothing ends tar, and its message is shown', async () => {
  const full = new UpError('Sending to cluster failed: no space', 'Check it.');
  const { fetch } = fetching(() => Promise.reject(full));
  await expect(sendSnapshot(fetch, await snapshot())).rejects.toBe(full);
});

it('an abort that came before fetches and sends nothing', async () => {
  const signal = AbortSignal.abort();
  const { fetch, spawned } = fetching((stream) => text(stream), signal);
  await expect(fetchWeights(fetch)).rejects.toThrow('aborted');
  expect(spawned).toEqual([]);
  await expect(sendSnapshot(fetch, await snapshot())).rejects.toThrow('aborted');
});
