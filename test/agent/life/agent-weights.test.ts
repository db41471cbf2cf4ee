/** The arguments of an engine, depending on what could be fetched of its weights. */
import { afterEach, expect, it } from 'vitest';
import { AgentWeights } from '../../../agent/life/agent-weights.ts';
import { atEnd, endAll, temporaryDirectory } from '../../support/processes.ts';
import { village } from '../mesh/village.ts';
import { startHub } from '../weights/mock-hub.ts';

afterEach(endAll);

const ENGINE = ['vllm', 'serve', '{{weights}}'];

async function prepared(repositories: string[], own: Record<string, string> = {}) {
  const hub = await startHub({ repository: 'lab/model', files: { 'config.json': Buffer.from('{}') } });
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
  return { directory, ...(await node.prepare(ENGINE, own)) };
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
