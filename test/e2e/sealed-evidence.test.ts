/**
 * Attestation evidence of machines: a helper that a site installs is called through the gateway, and a client's own
 * verifier decides if it is sufficient.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Evidence, type SealOptions, sealedFetch } from '../../clients/seal/index.ts';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { evidenceArgs, reportOf } from '../support/evidence-helper.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { type ProviderRoot, providerRoot } from '../support/provider-root.ts';
import { MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

const PATH = '/v1/chat/completions';
let cluster: TestCluster;
let root: ProviderRoot;

beforeAll(async () => {
  root = await providerRoot('lab');
  cluster = await openTestCluster({ agentArgs: ['--delegate-file', root.delegateFile, ...(await evidenceArgs())] });
});
afterAll(endAll);

function ask(options: SealOptions) {
  const fetching = sealedFetch({ pins: { [root.provider]: root.pin }, candidates: 16, ...options });
  return fetching(cluster.gateway.url + PATH, {
    method: 'POST',
    headers: { authorization: `Bearer ${cluster.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'x' }] }),
  });
}

const none = expect.objectContaining({ code: 'no_candidate' });

it('a verifier sees what the helper said over this node’s key and a new nonce, once for each key', async () => {
  const seen: Evidence[] = [];
  const verify = (evidence: Evidence) => {
    seen.push(evidence);
    return Buffer.from(evidence.bytes).toString() === reportOf(evidence.reportData);
  };
  const fetching = { verifier: { verify } };
  expect((await ask(fetching)).status).toBe(200);
  expect((await ask(fetching)).status).toBe(200);
  expect(seen.map(({ kinds, reportData }) => [kinds, reportData.length])).toEqual([
    [['tdx', 'nvidia'], 64],
    [['tdx', 'nvidia'], 64],
  ]);
  // Two clients send two different nonces.
  expect(Buffer.compare(seen[0]?.reportData ?? Buffer.of(), seen[1]?.reportData ?? Buffer.of())).not.toBe(0);
  const client = sealedFetch({ pins: { [root.provider]: root.pin }, ...fetching });
  const headers = { authorization: `Bearer ${cluster.key}` };
  const body = JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'x' }] });
  for (let n = 0; n < 3; n++) await client(cluster.gateway.url + PATH, { method: 'POST', headers, body });
  expect(seen.length).toBe(3);
});

it('what a verifier does not take is sealed nothing, and nothing is sent', async () => {
  const asked = () => cluster.engine.requests.filter(({ url }) => url.includes('completions')).length;
  const before = asked();
  const fails = () => Promise.reject(new Error('a certificate has run out'));
  for (const verify of [() => false, fails]) await expect(ask({ verifier: { verify } })).rejects.toEqual(none);
  const why = await ask({ verifier: { verify: fails } }).catch((error: unknown) => error);
  expect(why).toMatchObject({ cause: { message: 'a certificate has run out' } });
  expect(asked()).toBe(before);
});

it('a node without evidence is left out, and says so when asked', async () => {
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const { gateway, token } = cluster;
  const args = ['--delegate-file', root.delegateFile];
  await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, args });
  await gateway.serving(2);
  const nodes = new Set<string>();
  const options: SealOptions = { verifier: { verify: () => true }, onAnswer: ({ session }) => void nodes.add(session) };
  for (let n = 0; n < 8; n++) await ask(options).then((answer) => answer.text());
  expect([nodes.size, engine.requests.filter(({ url }) => url.includes('completions')).length]).toEqual([1, 0]);
});

it('a gateway cannot show the evidence of one answer for another', async () => {
  let kept: ArrayBuffer | undefined;
  const swaps: SealOptions['fetch'] = async (input, init) => {
    const response = await fetch(input, init);
    if (!String(input).endsWith('/v1/otela/evidence')) return response;
    kept ??= await response.arrayBuffer();
    return new Response(kept, response);
  };
  const verify = (evidence: Evidence) => Buffer.from(evidence.bytes).toString() === reportOf(evidence.reportData);
  expect((await ask({ verifier: { verify }, fetch: swaps })).status).toBe(200);
  await expect(ask({ verifier: { verify }, fetch: swaps })).rejects.toEqual(none);
});

it('in clear, or with no nonce, there is none', async () => {
  const clear = await cluster.ask('/v1/otela/evidence', { model: MODEL, nonce: 'A'.repeat(43) });
  expect(clear.ok).toBe(false);
  const fetching = sealedFetch({ pins: { [root.provider]: root.pin } });
  const sealed = await fetching(`${cluster.gateway.url}/v1/otela/evidence`, {
    method: 'POST',
    headers: { authorization: `Bearer ${cluster.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: MODEL, nonce: 'short' }),
  });
  expect(sealed.ok).toBe(false);
});
