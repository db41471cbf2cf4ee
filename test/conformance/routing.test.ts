/** Routing by an operator's and a key's settings: aliases, fallbacks, weights, policies. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { type Engine, startEngine } from '../support/engine.ts';
import { atEnd, endAll, eventually } from '../support/processes.ts';
import { chatBody, envelopeOf, MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

let cluster: TestCluster;
let other: Engine;
/** Served by only one of the two nodes. */
const SMALL = 'org/small';

beforeAll(async () => {
  cluster = await openTestCluster();
  other = await startEngine({ models: [MODEL, SMALL] });
  atEnd(() => other.close());
  const token = await cluster.gateway.createJoinToken('psi', 'merlin');
  await startAgent({ gateways: [cluster.gateway.url], token, engineUrl: other.url });
  await cluster.gateway.serving(2);
});
afterAll(endAll);

function ask(model: string, more: object = {}, init: RequestInit = {}): Promise<Response> {
  return cluster.ask('/v1/chat/completions', { ...chatBody({ tokens: 2 }), ...more, model }, init);
}

/** Waits until the operator's settings have reached the gateway's isolate, which `works` shows. */
const acts = (works: () => Promise<boolean>) =>
  eventually('what was set', 10_000, async () => (await works()) || undefined);

it('another name is answered by the model that it stands for, which is told; the engine sees its own name', async () => {
  await cluster.gateway.admin('PUT', `models/${MODEL}`, { aliases: ['gpt "large"'] });
  await acts(async () => (await ask('gpt "large"')).status === 200);
  for (const stream of [false, true]) {
    const response = await ask('gpt "large"', { stream });
    expect(response.headers.get('x-otela-served-model')).toBe(MODEL);
    const text = await response.text();
    if (stream) expect(text).toMatch(/data: \[DONE\]\s*$/);
    expect(text).not.toContain('"usage":{"prompt'.repeat(stream ? 1 : 2)); // the gateway asks for it in the stream, and removes it again
  }
  const seen = [...cluster.engine.requests, ...other.requests].map(({ bodyStart }) => bodyStart);
  for (const body of seen) expect(body).not.toContain('gpt');
  const { data } = (await (await cluster.ask('/v1/models')).json()) as { data: { id: string }[] };
  expect(data.map(({ id }) => id)).toEqual(['gpt "large"', SMALL, MODEL].sort());
  const opaque = await cluster.ask('/v1/chat/completions', chatBody(), { headers: { 'x-otela-model': 'gpt_large' } });
  expect(opaque.status).toBe(404);
});

it('a stream with a time for its first token goes to nodes whose streams began within it lately', async () => {
  // One such stream raises the mean above a second, also if earlier streams were fast.
  cluster.engine.control({ delayMs: 5_000 });
  const stream = async (headers = {}) => {
    const response = await ask(MODEL, { stream: true }, { headers });
    await response.text();
    return response.status;
  };
  // Round robin, so that both nodes are measured.
  await cluster.gateway.admin('PUT', `models/${MODEL}`, { policy: 'round-robin', aliases: ['gpt "large"'] });
  const slow = () => cluster.engine.requests.length;
  await eventually('a request at the slow node', 30_000, async () => {
    const before = slow();
    await stream();
    return slow() > before || undefined;
  });
  const before = slow();
  for (let n = 0; n < 6; n++) expect(await stream({ 'x-otela-first-token': '1s' })).toBe(200);
  expect(slow()).toBe(before);
  // The operator's time for the model applies to requests without a time.
  const settings = { policy: 'round-robin', aliases: ['gpt "large"'] };
  await cluster.gateway.admin('PUT', `models/${MODEL}`, { ...settings, first_token_ms: 1_000 });
  await eventually('the setting is in effect', 30_000, async () => {
    const first = slow();
    for (let n = 0; n < 4; n++) await stream();
    return slow() === first || undefined;
  });
  for (let n = 0; n < 2; n++) await stream({ 'x-otela-first-token': '10m' });
  expect(slow()).toBeGreaterThan(before); // The client's own time takes precedence.
  await cluster.gateway.admin('PUT', `models/${MODEL}`, settings);
  expect(await stream({ 'x-otela-first-token': '1ms' })).toBe(200); // no node meets it: in the usual order
  for (const wrong of ['soon', '0', '-1s', '11m', '500'])
    expect([wrong, await stream({ 'x-otela-first-token': wrong })]).toEqual([wrong, 400]);
  cluster.engine.control({}, 0);
});

it('where nobody serves a model its fallback is asked, and told', async () => {
  await cluster.gateway.admin('PUT', 'models/org/never', { fallbacks: ['org/not-either', SMALL] });
  await acts(async () => (await ask('org/never')).status === 200);
  const response = await ask('org/never');
  expect(response.headers.get('x-otela-served-model')).toBe(SMALL);
  expect(response.headers.get('x-otela-provider')).toBe('psi');
  // A requirement that no serving node meets is an error, even if the model has a fallback.
  await cluster.gateway.admin('PUT', `models/${MODEL}`, { fallbacks: [SMALL] });
  const required = await ask(MODEL, {}, { headers: { 'x-otela-require': 'region=mars' } });
  expect(required.status).toBe(412);
  expect((await envelopeOf(required)).code).toBe('requirement_not_met');
  // A key that may not use the fallback does not get it.
  const key = await cluster.gateway.createKey('never only', { models: ['org/never'] });
  const init = { headers: { authorization: `Bearer ${key}` }, signal: AbortSignal.timeout(500) };
  await expect(ask('org/never', {}, init).then(({ status }) => status)).rejects.toThrow(/abort|timeout/i); // it waits for a node
});

it('a key has names of its own, for models that it may use', async () => {
  const routing = { aliases: { mine: SMALL } };
  const key = await cluster.gateway.createKey('own names', { routing, models: [SMALL] });
  const closed = await cluster.gateway.createKey('own names, another list', { routing, models: ['mine'] });
  const as = (one: string) => ask('mine', {}, { headers: { authorization: `Bearer ${one}` } });
  expect((await as(key)).headers.get('x-otela-served-model')).toBe(SMALL);
  expect((await as(closed)).status).toBe(403);
  expect((await as(cluster.key)).status).toBe(404);
});

it('weights act on the next requests, and no longer than they are there', async () => {
  const providers = async () => {
    const seen: (string | null)[] = [];
    // Enough requests that chance does not send all to one node before the weights take effect.
    for (let n = 0; n < 25; n++) {
      const response = await ask(MODEL);
      seen.push(response.headers.get('x-otela-provider'));
      await response.text();
    }
    return new Set(seen);
  };
  await cluster.gateway.admin('PUT', `routing/${MODEL}`, { weights: [{ cluster: 'merlin', weight: 1 }] });
  await acts(async () => (await providers()).size === 1);
  expect(await providers()).toEqual(new Set(['psi']));
  await cluster.gateway.admin('DELETE', `routing/${MODEL}`);
  await acts(async () => (await providers()).size === 2);
});

it('requests go by their kind, among nodes that may have them; the workload counts kinds and misjudgements', async () => {
  const kinds = [
    { name: 'chat', input: 10, output: 2, share: 0.5 },
    { name: 'document', input: 4_000, output: 2, share: 0.5 },
  ];
  const weights = [
    { kind: 'chat', cluster: 'merlin', weight: 0 },
    { kind: 'document', cluster: 'merlin', weight: 1 },
    { kind: 'document', weight: 0 },
    { weight: 1 },
  ];
  const document = { messages: [{ role: 'user', content: 'word '.repeat(4_000) }] };
  const provider = async (more: object, headers: Record<string, string> = {}) => {
    const response = await ask(MODEL, more, { headers });
    await response.text();
    return response.headers.get('x-otela-provider');
  };
  const several = async (more: object) => {
    const seen = new Set<string | null>();
    for (let n = 0; n < 12; n++) seen.add(await provider(more));
    return [...seen].join();
  };
  await cluster.gateway.admin('PUT', `routing/${MODEL}`, { weights, kinds });
  await acts(async () => (await several(document)) === 'psi' && (await several({})) === 'lab');
  // Requests before the kinds took effect have no kind; the counted ones follow after this line.
  expect([await several(document), await several({})]).toEqual(['psi', 'lab']);
  // The providers that a request trusts take precedence.
  expect(await provider(document, { 'x-otela-trusted-providers': 'lab' })).toBe('lab');
  type Row = { model: string; slots: { requests: number[] }[]; misjudged: { requests: number; wrong: number } };
  const counted = await eventually('the records', 20_000, async () => {
    const { data } = (await cluster.gateway.admin('GET', 'workload?by=kind&window=30m&slot=600s')) as { data: Row[] };
    const row = data.find(({ model }) => model === MODEL);
    return row !== undefined && row.misjudged.requests >= 25 ? row : undefined;
  });
  // A slot may end during the requests.
  for (const kind of [0, 1])
    expect(counted.slots.reduce((sum, { requests }) => sum + (requests[kind] ?? 0), 0)).toBeGreaterThan(5);
  expect(counted.misjudged.wrong).toBe(0);
  await cluster.gateway.admin('DELETE', `routing/${MODEL}`);
});

it('by a key’s round-robin its requests go to each node in turn', async () => {
  const key = await cluster.gateway.createKey('in turn', { routing: { policy: 'round-robin' } });
  const seen: string[] = [];
  for (let n = 0; n < 20; n++) {
    const response = await ask(MODEL, {}, { headers: { authorization: `Bearer ${key}` } });
    seen.push(response.headers.get('x-otela-provider') ?? '');
    await response.text();
  }
  expect(seen.filter((one) => one === 'lab')).toHaveLength(10);
});

it('a conversation stays at its node by the name that its client sends, apart from the same name in another project', async () => {
  const nodes = async (key: string, name: string, conversation: string) => {
    const seen = new Set<string | null>();
    for (let turn = 0; turn < 4; turn++) {
      const headers = { authorization: `Bearer ${key}`, [name]: conversation };
      const response = await ask(MODEL, {}, { headers });
      seen.add(response.headers.get('x-otela-node'));
      await response.text();
    }
    return seen;
  };
  for (const name of ['x-claude-code-session-id', 'session-id', 'x-session-affinity', 'x-openwebui-chat-id'])
    expect((await nodes(cluster.key, name, 'one')).size, name).toBe(1);
  const other = await cluster.gateway.createKey('other');
  const placed = async (key: string) => {
    const of: string[] = [];
    for (let n = 0; n < 8; n++) of.push([...(await nodes(key, 'session-id', `chat-${n}`))].join());
    return of.join();
  };
  expect(await placed(cluster.key)).not.toBe(await placed(other));
});
