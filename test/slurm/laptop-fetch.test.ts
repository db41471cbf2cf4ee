/** Weights that are fetched before the job: on the login node, or on the laptop, from which they travel. */
import { existsSync } from 'node:fs';
import { appendFile, lstat, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { COMMIT, startHub } from '../agent/weights/mock-hub.ts';
import { endAll } from '../support/processes.ts';
import { NO_SSHD } from '../support/ssh-host.ts';
import { answer, Laptop, MODEL, served } from './laptop.ts';

afterEach(endAll);

const FILES = { 'config.json': Buffer.from('{"model_type":"x"}'), 'model.safetensors': Buffer.alloc(3_000_000, 7) };
const NOWHERE = 'http://127.0.0.1:1';
const SNAPSHOT = `.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/${COMMIT}`;

/** A cluster with an engine that asks no hub and needs the weights in the cache. */
async function opened(login: string, laptopEndpoint: string): Promise<Laptop> {
  const laptop = await Laptop.open();
  const { home } = laptop.user;
  const vllm = join(home, 'bin/vllm');
  const serve = (await readFile(vllm, 'utf8')).replace('#!/bin/sh\n', '');
  const needs = `[ "$HF_HUB_OFFLINE" = 1 ] && [ -s "$HOME/${SNAPSHOT}/model.safetensors" ] || exit 3`;
  await writeFile(vllm, `#!/bin/sh\n${needs}\n${serve}`);
  await appendFile(join(home, '.bash_profile'), `export HF_ENDPOINT=${login}\n`);
  laptop.env.HF_ENDPOINT = laptopEndpoint;
  return laptop;
}

it.skipIf(NO_SSHD)('the login node fetches what it reaches, and nothing is fetched again', async () => {
  const hub = await startHub({ repository: MODEL, files: FILES });
  const laptop = await opened(hub.url, NOWHERE);
  const up = laptop.up('--fetch', '--time', '5');
  expect(await answer(await served(up))).toContain('stand-in');
  expect(up.output).toMatch(/fetching the weights on cluster: 3\.0 MB of 3\.0 MB/);
  expect(hub.seen).toHaveLength(4);
  expect(await laptop.ran('down')).toMatchObject({ code: 0 });
  await up.end(30_000);
  const again = laptop.up('--fetch', '--time', '5');
  await served(again);
  expect(hub.seen).toHaveLength(5);
});

it.skipIf(NO_SSHD)('weights travel from the laptop if the login node has no way to the hub', async () => {
  const hub = await startHub({ repository: MODEL, files: FILES });
  const laptop = await opened(NOWHERE, hub.url);
  const up = laptop.up('--fetch', '--time', '5');
  expect(await answer(await served(up))).toContain('stand-in');
  expect(up.output).toMatch(/sending the weights to cluster: \d+ MiB/);
  const there = join(laptop.user.home, SNAPSHOT, 'model.safetensors');
  expect((await lstat(there)).isFile()).toBe(true);
  expect((await readFile(there)).equals(FILES['model.safetensors'])).toBe(true);
});

it.skipIf(NO_SSHD)('a hub that refuses, and a machine without any way to it, are told, and no job starts', async () => {
  const hub = await startHub({ repository: MODEL, files: FILES, token: 'hf_secret', gated: true });
  const laptop = await opened(hub.url, NOWHERE);
  const refused = laptop.up('--fetch');
  expect(await refused.end(60_000)).toMatchObject({ code: 69 });
  expect(refused.output).toMatch(/cannot be fetched on cluster:[\s\S]*is restricted[\s\S]*hf auth login on cluster/);
  await appendFile(join(laptop.user.home, '.bash_profile'), `export HF_ENDPOINT=${NOWHERE}\n`);
  const nowhere = laptop.up('--fetch');
  expect(await nowhere.end(60_000)).toMatchObject({ code: 69 });
  expect(nowhere.output).toMatch(/cannot be fetched on this machine:/);
  expect(laptop.cluster.command('squeue', '-h', '-o', '%i').trim()).toBe('');
  expect(existsSync(join(laptop.user.home, SNAPSHOT))).toBe(false);
});
