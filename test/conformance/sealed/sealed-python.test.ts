/** The unmodified Python openai SDK over the sealing transports of clients/python. */
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { fileOf } from '../../docs/page.ts';
import { pythonWith } from '../../support/abilities.ts';
import { text as wordsOf } from '../../support/engine/words.ts';
import { evidenceArgs } from '../../support/evidence-helper.ts';
import { endAll, eventually, Managed } from '../../support/processes.ts';
import { providerRoot } from '../../support/provider-root.ts';
import { MODEL, openTestCluster } from '../../support/test-cluster.ts';
import { ROOT } from '../../support/where.ts';

const python = pythonWith(ROOT, 'pyhpke');
afterAll(endAll);

/** Runs a script of this folder. Its last line is JSON. */
async function saidBy(script: string, ...args: string[]): Promise<unknown> {
  const run = new Managed([python ?? '', join(ROOT, 'test/conformance/sealed', script), ...args], {
    label: 'python',
    env: { PYTHONPATH: join(ROOT, 'clients/python') },
  });
  const { code } = await run.end(150_000);
  expect(code, run.output).toBe(0);
  return JSON.parse(run.output.trim().split('\n').at(-1) ?? '');
}

it('reads the vectors that all implementations share', async ({ skip }) => {
  if (python === undefined) return skip('no Python with the pyhpke package');
  expect(await saidBy('sealed-vectors.py', join(ROOT, 'test/fixtures/seal.json'))).toBe('ok');
});

it('runs the program of the README', async ({ skip }) => {
  if (python === undefined) return skip('no Python with the pyhpke package');
  const cluster = await openTestCluster();
  const program = fileOf('clients/python/README.md', 'sealed.py').replace('Qwen/Qwen3-8B', MODEL);
  const run = new Managed([python, '-c', program], {
    label: 'python',
    env: { PYTHONPATH: join(ROOT, 'clients/python'), OPENAI_BASE_URL: cluster.base, OPENAI_API_KEY: cluster.key },
  });
  expect([(await run.end(150_000)).code, run.output]).toEqual([0, expect.stringContaining('not a language model')]);
});

it('seals chats, streams and the rest, sync and async, and refuses what it cannot seal', async ({ skip }) => {
  if (python === undefined)
    return skip('no Python with the pyhpke package: set OTELA_TEST_PYTHON, or let .ci/run make .ci/venv');
  const root = await providerRoot('lab');
  const cluster = await openTestCluster({ agentArgs: ['--delegate-file', root.delegateFile] });
  await cluster.gateway.admin('PUT', `models/${encodeURIComponent(MODEL)}`, { aliases: ['fast'] });
  await cluster.gateway.admin('PATCH', `catalogue/${encodeURIComponent(MODEL)}`, { sunset_at: '2046-06-30T00:00:00Z' });
  await eventually('the alias is known', 20_000, async () => {
    const listed = await cluster.ask('/v1/otela/seal?model=fast');
    return (await listed.text()).includes(MODEL) || undefined;
  });
  const said = await saidBy('sealed-python.py', cluster.base, cluster.key, MODEL, root.provider, root.pin);
  expect(said).toEqual({
    chat: ['This is a stand-in engine', 'pinned'],
    stream: 'This is a stand-in engine',
    embeddings: [16, 16],
    models: ['fast', MODEL],
    'bad request': expect.anything(),
    'not found': 'model_not_found',
    'other root': 'no_candidate',
    alias: 'alias',
    resolved: MODEL,
    conflict: expect.anything(),
    trusted: 'unknown_provider',
    'bad pin': expect.stringContaining('otela-agent vouch'),
    connections: 1,
    sunset: 'Sat, 30 Jun 2046 00:00:00 GMT',
    files: 'not_sealable',
    plain: 'plain_answer',
    unsealed: 'not_opened',
    endless: 'no_discovery',
    cut: 'gateway',
    async: 'This is a stand-in engine',
    'async plain': 'plain_answer',
    'async unsealed': 'not_opened',
    closed: 2,
  });
  expect(cluster.gateway.process.output).not.toContain('python-canary-41c7');
});

it('seals to nodes alone whose evidence a verifier takes, sync and async', async ({ skip }) => {
  if (python === undefined) return skip('no Python with the pyhpke package');
  const root = await providerRoot('lab');
  const cluster = await openTestCluster({
    agentArgs: ['--delegate-file', root.delegateFile, ...(await evidenceArgs())],
  });
  const said = await saidBy('sealed-python-evidence.py', cluster.base, cluster.key, MODEL, root.provider, root.pin);
  expect(said).toEqual({
    sync: ['length', 'length'],
    async: ['length', 'length'],
    asked: [1, 1, 1],
    kinds: ['nvidia', 'tdx'],
    nonces: 3,
    refused: ['no_candidate', 'None', 'None', 1],
    raised: ['no_candidate', 'a certificate has run out', 'a certificate has run out', 1],
    truthy: 'no_candidate',
    swapped: 'no_candidate',
    sent: 0,
  });
});

it('goes on at another candidate, sync and async, and takes none that was not asked for', async ({ skip }) => {
  if (python === undefined) return skip('no Python with the pyhpke package');
  const root = await providerRoot('lab');
  const cluster = await openTestCluster({
    nodes: 2,
    engine: { behaviour: { tokens: 30 } },
    agentArgs: ['--delegate-file', root.delegateFile],
  });
  cluster.engine.control({ fault: 'reset', afterTokens: 9, tokensPerSecond: 100 });
  const said = await saidBy('sealed-python-resume.py', cluster.base, cluster.key, MODEL, root.provider, root.pin);
  const whole = wordsOf(30);
  expect(said).toEqual({
    sync: [whole],
    async: [whole],
    broken: ['gateway'],
    dropped: ['cut'],
    forged: ['not_opened'],
  });
});
