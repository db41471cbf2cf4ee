/** The arguments of an engine, depending on what could be fetched of its weights. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { AgentWeights } from '../../../agent/life/agent-weights.ts';
import { atEnd, endAll, temporaryDirectory } from '../../support/processes.ts';
import { village } from '../mesh/village.ts';
import { startHub } from '../weights/mock-hub.ts';

afterEach(endAll);

const ENGINE = ['vllm', 'serve', '{{weights}}'];

async function prepared(repositories: string[], own: Record<string, string> = {}) {
  const { directory, node } = await joined(repositories, {});
  return { directory, ...(await node.prepare(ENGINE, own)) };
}

/** A node that has joined its mesh, with the token `none` of its provider. */
async function joined(repositories: string[], gated: { gated?: boolean; token?: string }) {
  const hub = await startHub({ repository: 'lab/model', files: { 'config.json': Buffer.from('{}') }, ...gated });
  const directory = await temporaryDirectory('otela-weights');
  const sources = repositories.map((name) => `hub:${name}@main`);
  const node = new AgentWeights({
    config: {
      directory,
      limitBytes: 2 ** 30,
      uploads: 2,
      rate: undefined,
      clusters: [],
      sources,
      environment: undefined,
    },
    env: { HF_ENDPOINT: hub.url, HF_TOKEN: 'none' },
    issuerName: () => undefined,
    onRecord: () => {},
    log: () => {},
  });
  atEnd(() => node.close());
  await node.open();
  const { mesh, ticket } = await village().join();
  node.join(mesh, ticket);
  return { directory, node, hub };
}

it('an engine whose models are all here asks no hub, unless its operator says so', async () => {
  const { directory, env } = await prepared(['lab/model']);
  expect(env).toEqual({ HF_HUB_CACHE: directory, HF_HUB_OFFLINE: '1' });
  expect((await prepared(['lab/model'], { HF_HUB_OFFLINE: '0' })).env.HF_HUB_OFFLINE).toBe('0');
});

it('an engine reads of the hub what could not be had, beside what is here', async () => {
  const { directory, env } = await prepared(['lab/model', 'lab/gone']);
  expect(env).toEqual({ HF_HUB_CACHE: directory });
  expect((await prepared(['lab/gone'])).env).toEqual({});
});

it('an engine of the next session waits until that session can ask other nodes', async () => {
  const { node, hub } = await joined(['lab/model'], {});
  node.leave();
  const engine = node.prepare(ENGINE, {});
  await sleep(200);
  expect(hub.seen).toEqual([]);
  const { mesh, ticket } = await village().join();
  node.join(mesh, ticket);
  await engine;
  expect(hub.seen).not.toEqual([]);
});

const REPOSITORY = 'hub:lab/model@main';

it('a repository that not everybody may read goes to functions of owners whose token opens it, also if it is here', async () => {
  const { node, hub } = await joined([], { gated: true, token: 'ada' });
  await expect(node.pullForFunction(REPOSITORY, 'eve')).rejects.toThrow('restricted');
  await node.pullForFunction(REPOSITORY, 'ada');
  expect(hub.seen.some((one) => one.includes('/resolve/') && one.endsWith('Bearer ada'))).toBe(true);
  // It is on the disk now, and `main` is known.
  await expect(node.pullForFunction(REPOSITORY, 'eve')).rejects.toThrow('restricted');
  await expect(node.pullForFunction(REPOSITORY, undefined)).rejects.toThrow('secrets=["HF_TOKEN"]');
});

it('a repository that everybody may read needs no token of the owner', async () => {
  const { node, hub } = await joined([], {});
  await node.pullForFunction(REPOSITORY, undefined);
  expect(hub.seen.every((one) => one.endsWith('Bearer none'))).toBe(true);
});
