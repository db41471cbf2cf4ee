/**
 * Which machines see a prompt: keys, projects and requests restrict it, and real nodes of several providers serve it.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { type Engine, startEngine } from '../../support/engine.ts';
import { atEnd, endAll, eventually, type Managed } from '../../support/processes.ts';
import { chatBody, envelopeOf, MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

let cluster: TestCluster;
let lab: Engine;
let psi: Engine;
let psiAgent: Managed;
/** A model that `lab` does not serve. */
const RARE = 'rare/model';

beforeAll(async () => {
  cluster = await openTestCluster({ agentArgs: ['--region', 'ch', '--tier', 'stable'] });
  lab = cluster.engine;
  psi = await startEngine({ models: [MODEL, RARE] });
  atEnd(() => psi.close());
  psiAgent = await startPsi();
  await cluster.gateway.serving(2);
  await cluster.gateway.admin('POST', 'providers', { id: 'nobody' });
});
afterAll(endAll);

async function startPsi(): Promise<Managed> {
  const token = await cluster.gateway.createJoinToken('psi', 'merlin');
  const args = ['--region', 'de', '--tier', 'volatile'];
  return startAgent({ gateways: [cluster.gateway.url], token, engineUrl: psi.url, args });
}

const auth = (key: string) => ({ authorization: `Bearer ${key}` });

async function ask(
  key: string,
  headers: Record<string, string> = {},
  more: object = {},
  signal?: AbortSignal,
): Promise<Response> {
  const init = { headers: { ...auth(key), ...headers }, ...(signal === undefined ? {} : { signal }) };
  return cluster.ask('/v1/chat/completions', { ...chatBody({ tokens: 1 }), ...more }, init);
}

/** Providers that answered in `times` requests. */
async function providersOf(times: number, call: (n: number) => Promise<Response>): Promise<string[]> {
  const seen = new Set<string>();
  for (let n = 0; n < times; n++) {
    const response = await call(n);
    expect(response.status, await response.text()).toBe(200);
    seen.add(response.headers.get('x-otela-provider') ?? '');
  }
  return [...seen].sort();
}

const TIMES = 16;

/** Interactive requests prefer the stable node, batch requests the volatile one. */
const inTurn = (n: number) => ({ 'x-otela-priority': n % 2 === 0 ? 'interactive' : 'batch' });

it('without any list every provider that was admitted is trusted', async () => {
  expect(await providersOf(TIMES, (n) => ask(cluster.key, inTurn(n)))).toEqual(['lab', 'psi']);
});

it('requirements of the header and of metadata narrow that further; a preference only orders', async () => {
  const header = { 'x-otela-require': 'region=ch' };
  expect(await providersOf(TIMES / 2, () => ask(cluster.key, header))).toEqual(['lab']);
  const metadata = { metadata: { otela_require: 'tier=volatile' } };
  expect(await providersOf(TIMES / 2, () => ask(cluster.key, {}, metadata))).toEqual(['psi']);
  const neither = await ask(cluster.key, header, metadata);
  expect(neither.status).toBe(412);
  const { code, message } = await envelopeOf(neither);
  expect(code).toBe('requirement_not_met');
  expect(message).toContain('region=ch tier=stable');
  expect(message).toContain('region=de tier=volatile');
  // The message does not list providers that the key does not trust.
  const key = await cluster.gateway.createKey('lab alone', { trusted_providers: ['lab'] });
  const narrow = (await envelopeOf(await ask(key, { 'x-otela-require': 'region=de' }))).message;
  expect(narrow).toContain('region=ch');
  expect(narrow).not.toContain('region=de');
  expect(await providersOf(TIMES / 2, () => ask(cluster.key, { 'x-otela-prefer': 'region=de' }))).toEqual(['psi']);
  expect(await providersOf(2, () => ask(key, { 'x-otela-prefer': 'region=de' }))).toEqual(['lab']);
});

it('a conversation stays at its node', async () => {
  for (const name of ['one', 'two', 'three']) {
    const nodes = new Set<string | null>();
    for (let n = 0; n < 6; n++) {
      const response = await ask(cluster.key, { 'x-otela-session': name });
      nodes.add(response.headers.get('x-otela-node'));
      await response.text();
    }
    expect(nodes.size, name).toBe(1);
  }
});

it('a list of the key, of its project, of the header and of metadata each hold, and all of them together', async () => {
  const key = await cluster.gateway.createKey('lab only', { trusted_providers: ['lab'] });
  expect(await providersOf(TIMES, () => ask(key))).toEqual(['lab']);
  const project = (await cluster.gateway.admin('POST', 'projects', {
    name: 'p',
    trusted_providers: ['psi', 'nobody'],
  })) as { id: string };
  const member = await cluster.gateway.createKey('member', { project_id: project.id });
  expect(await providersOf(TIMES, () => ask(member))).toEqual(['psi']);
  const header = { 'x-otela-trusted-providers': 'psi, nobody' };
  expect(await providersOf(TIMES, () => ask(cluster.key, header))).toEqual(['psi']);
  const metadata = { metadata: { otela_trusted_providers: 'lab' } };
  expect(await providersOf(TIMES, () => ask(cluster.key, {}, metadata))).toEqual(['lab']);
  const before = [lab.requests.length, psi.requests.length];
  for (const refused of [
    await ask(key, { 'x-otela-trusted-providers': 'psi' }),
    await ask(cluster.key, header, metadata),
    await ask(cluster.key, { 'x-otela-trusted-providers': '' }),
    await ask(await cluster.gateway.createKey('nobody', { trusted_providers: [] })),
  ]) {
    expect(refused.status).toBe(403);
    expect((await envelopeOf(refused)).code).toBe('no_trusted_provider');
  }
  expect([lab.requests.length, psi.requests.length], 'no prompt went anywhere').toEqual(before);
});

it('trusted providers without a node for the model are 503, and the others never hear of it', async () => {
  const before = psi.requests.length;
  for (const trusted of ['lab', 'nobody']) {
    const response = await ask(cluster.key, { 'x-otela-trusted-providers': trusted }, { model: RARE });
    expect(response.status).toBe(503);
    expect((await envelopeOf(response)).code).toBe('no_capacity');
  }
  expect(psi.requests.length).toBe(before);
});

it('a provider that this gateway never knew is 400, and so is what is no list', async () => {
  for (const text of ['neverheard', 'lab, neverheard', 'lab@nowhere', 'LAB', 'lab psi', "lab' OR 1=1"]) {
    const response = await ask(cluster.key, { 'x-otela-trusted-providers': text });
    expect(response.status, text).toBe(400);
    expect((await envelopeOf(response)).code).toBe('unknown_provider');
  }
});

it('a node that fails hands over to trusted ones alone, on every attempt', async () => {
  const other = await startEngine({ models: [MODEL] });
  atEnd(() => other.close());
  const token = await cluster.gateway.createJoinToken('lab', 'second');
  const agent = await startAgent({ gateways: [cluster.gateway.url], token, engineUrl: other.url });
  await cluster.gateway.serving(3);
  const before = psi.requests.length;
  lab.control({ status: 503 }, TIMES);
  other.control({ status: 503 }, TIMES);
  const key = await cluster.gateway.createKey('lab only', { trusted_providers: ['lab'] });
  const response = await ask(key);
  expect(response.status).toBe(503);
  await response.text();
  expect(lab.requests.length + other.requests.length).toBeGreaterThanOrEqual(2);
  expect(psi.requests.length, 'the last resort is not psi').toBe(before);
  lab.control({}, 1);
  await agent.stop();
  await cluster.gateway.serving(2);
});

it('regions and tiers of a key decide where its data may go', async () => {
  const swiss = await cluster.gateway.createKey('swiss', { regions: ['ch', 'at'] });
  expect(await providersOf(TIMES, () => ask(swiss))).toEqual(['lab']);
  const volatile = await cluster.gateway.createKey('volatile', { tiers: ['volatile'] });
  expect(await providersOf(TIMES, () => ask(volatile))).toEqual(['psi']);
  const neither = await cluster.gateway.createKey('neither', { tiers: ['volatile'], regions: ['ch'] });
  expect((await ask(neither)).status).toBe(503);
});

it('models are listed, retrieved and asked as far as the key goes', async () => {
  const listed = async (key: string) => {
    const response = await cluster.ask('/v1/models', undefined, { headers: auth(key) });
    return ((await response.json()) as { data: { id: string }[] }).data.map(({ id }) => id);
  };
  expect(await listed(cluster.key)).toEqual([RARE, MODEL]);
  expect(await listed(await cluster.gateway.createKey('lab', { trusted_providers: ['lab'] }))).toEqual([MODEL]);
  const key = await cluster.gateway.createKey('rare', { models: ['rare/*'] });
  expect(await listed(key)).toEqual([RARE]);
  expect((await cluster.ask(`/v1/models/${MODEL}`, undefined, { headers: auth(key) })).status).toBe(404);
  expect((await ask(key, {}, { model: RARE })).status).toBe(200);
  const before = [lab.requests.length, psi.requests.length];
  for (const model of [MODEL, 'no/such/model']) {
    const refused = await ask(key, {}, { model });
    expect(refused.status).toBe(403);
    expect((await envelopeOf(refused)).code).toBe('model_not_allowed');
  }
  // The body could name a different model from the header.
  const hidden = await ask(key, { 'x-otela-model': RARE });
  expect((await envelopeOf(hidden)).code).toBe('model_not_allowed');
  expect([lab.requests.length, psi.requests.length]).toEqual(before);
});

it('endpoints and scopes of a key hold', async () => {
  const chat = await cluster.gateway.createKey('chat', { endpoints: ['chat/completions'] });
  expect((await ask(chat)).status).toBe(200);
  const body = { model: MODEL, prompt: 'a' };
  const other = await cluster.ask('/v1/completions', body, { headers: auth(chat) });
  expect((await envelopeOf(other)).code).toBe('permission_denied');
  const watcher = await cluster.gateway.createKey('watcher', { scopes: ['registry'] });
  expect((await ask(watcher)).status).toBe(403);
  expect((await cluster.ask('/v1/models', undefined, { headers: auth(watcher) })).status).toBe(403);
  expect((await cluster.ask('/v1/registry/nodes', undefined, { headers: auth(watcher) })).status).toBe(200);
  const caller = await cluster.gateway.createKey('caller', { scopes: ['inference'] });
  expect((await cluster.ask('/v1/registry/nodes', undefined, { headers: auth(caller) })).status).toBe(403);
});

it('a revoked key, a narrowed one and a deleted provider act within five seconds, each way round', async () => {
  const key = (await cluster.gateway.admin('POST', 'keys', { name: 'k' })) as { id: string; key: string };
  // A node is avoided for a second after its engine refused a request, as in an earlier test.
  await eventually('both providers', 5_000, async () =>
    (await providersOf(TIMES, (n) => ask(key.key, inTurn(n)))).length === 2 ? true : undefined,
  );
  const soon = async (what: string, done: (response: Response) => boolean) => {
    await eventually(what, 5_000, async () => {
      // A request that was running when its node was ended waits for the node to return, so the next request is sent
      // meanwhile.
      const response = await ask(key.key, {}, {}, AbortSignal.timeout(1_000)).catch(() => undefined);
      await response?.text();
      return response !== undefined && done(response) ? true : undefined;
    });
  };
  await cluster.gateway.admin('PATCH', `keys/${key.id}`, { endpoints: ['embeddings'] });
  await soon('the narrowed key refused', ({ status }) => status === 403);
  await cluster.gateway.admin('PATCH', `keys/${key.id}`, { endpoints: null, trusted_providers: ['psi'] });
  await soon('the key let in again', ({ status }) => status === 200);
  await cluster.gateway.admin('DELETE', 'providers/psi');
  // Its key's list still names it, and matches nothing.
  await soon('the deleted provider left out', ({ status }) => status === 403);
  await cluster.gateway.serving(1);
  expect((await psiAgent.end(15_000)).code, 'its agent was told').toBe(69);
  expect((await ask(cluster.key, { 'x-otela-trusted-providers': 'psi' })).status).toBe(403);
  expect(await providersOf(TIMES, () => ask(cluster.key))).toEqual(['lab']);
  await cluster.gateway.admin('POST', 'providers', { id: 'psi' });
  psiAgent = await startPsi();
  await cluster.gateway.serving(2);
  await soon('the provider back', ({ status }) => status === 200);
  await cluster.gateway.admin('DELETE', `keys/${key.id}`);
  await soon('the revoked key refused', ({ status }) => status === 401);
});

it('where only marked providers are trusted, the others are reached by those who name them', async () => {
  await cluster.gateway.admin('PATCH', 'providers/psi', { trusted_by_default: false });
  await cluster.gateway.admin('PATCH', 'settings', { default_trust: 'marked' });
  await eventually('psi left out', 5_000, async () => {
    const seen = await providersOf(TIMES, () => ask(cluster.key));
    return seen.includes('psi') ? undefined : true;
  });
  expect(await providersOf(4, () => ask(cluster.key, { 'x-otela-trusted-providers': 'psi' }))).toEqual(['psi']);
  await cluster.gateway.admin('PATCH', 'settings', { default_trust: null });
  await cluster.gateway.admin('PATCH', 'providers/psi', { trusted_by_default: true });
});
