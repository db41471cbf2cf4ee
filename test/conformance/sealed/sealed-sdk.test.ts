/**
 * Sealed requests from SDKs in special cases: Anthropic's own client, retries, and model aliases.
 * test/conformance/sdk/openai-sdk.test.ts has the rest.
 */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type SealOptions, sealedFetch } from '../../../clients/seal/index.ts';
import { startAgent } from '../../support/agent.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { type ProviderRoot, providerRoot } from '../../support/provider-root.ts';
import { MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

const WORD = 'canary-sdk-6b20';
const user = [{ role: 'user' as const, content: WORD }];
let cluster: TestCluster;
let root: ProviderRoot;

beforeAll(async () => {
  root = await providerRoot('lab');
  cluster = await openTestCluster({ agentArgs: ['--delegate-file', root.delegateFile] });
});
afterAll(endAll);

const sealed = (more: SealOptions = {}) => sealedFetch({ pins: { [root.provider]: root.pin }, ...more });
const anthropic = () =>
  new Anthropic({ baseURL: cluster.gateway.url, authToken: cluster.key, apiKey: null, maxRetries: 0, fetch: sealed() });
const openai = (maxRetries: number, more: SealOptions = {}) =>
  new OpenAI({ baseURL: cluster.base, apiKey: cluster.key, maxRetries, fetch: sealed(more) });

it('Anthropic’s client gets messages, streams, counts and errors', async () => {
  const { data: message, response } = await anthropic()
    .messages.create({ model: MODEL, max_tokens: 5, messages: user })
    .withResponse();
  expect(message.content).toEqual([{ type: 'text', text: 'This is a stand-in engine' }]);
  expect(response.headers.get('x-otela-sealed')).toBe('pinned');
  const streamed = await anthropic().messages.stream({ model: MODEL, max_tokens: 5, messages: user }).finalMessage();
  expect([streamed.content, streamed.usage.output_tokens]).toEqual([message.content, 5]);
  expect((await anthropic().messages.countTokens({ model: MODEL, messages: user })).input_tokens).toBeGreaterThan(1);
  await expect(
    anthropic().messages.create({ model: 'nobody/serves-this', max_tokens: 1, messages: user }),
  ).rejects.toBeInstanceOf(Anthropic.NotFoundError);
  expect(cluster.gateway.process.output).not.toContain(WORD);
});

it('a request that the only engine broke off is sealed again by the SDK’s retry, and answered', async () => {
  const before = cluster.engine.requests.length;
  cluster.engine.control({ fault: 'reset', afterTokens: 2 }, 1);
  const answer = await openai(2).chat.completions.create({ model: MODEL, messages: user });
  expect(answer.choices[0]?.message.content).toContain('stand-in');
  expect(cluster.engine.requests.length - before).toBe(2);
});

it('another name of a model is refused before anything is sent, or taken where the caller allows it', async () => {
  await cluster.gateway.admin('PUT', `models/${encodeURIComponent(MODEL)}`, { aliases: ['fast'] });
  const ask = (more: SealOptions) => openai(0, more).chat.completions.create({ model: 'fast', messages: user });
  await eventually('the alias is known', 20_000, async () => {
    const before = cluster.engine.requests.length;
    const error: unknown = await ask({}).catch((caught: unknown) => caught);
    expect(cluster.engine.requests.length).toBe(before);
    const cause = error instanceof Error ? error.cause : undefined;
    return (typeof cause === 'object' && cause !== null && 'code' in cause && cause.code === 'alias') || undefined;
  });
  const answer = await ask({ aliases: true });
  expect([answer.model, answer.choices.length]).toEqual([MODEL, 1]);
});

it('a key that may use some models alone may seal to them, and to no other', async () => {
  const key = await cluster.gateway.createKey('few', { models: [MODEL] });
  const ask = (model: string) =>
    sealed()(`${cluster.base}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify({ model, messages: user }),
    });
  expect((await ask(MODEL)).status).toBe(200);
  expect((await ask('nobody/serves-this')).status).toBe(403);
});

it('a model that ends says so under the seal, too', async () => {
  const one = `catalogue/${encodeURIComponent(MODEL)}`;
  await cluster.gateway.admin('PATCH', one, {
    deprecated_at: '2026-01-31T00:00:00Z',
    sunset_at: '2046-06-30T00:00:00Z',
  });
  const told = await eventually('answers say it', 20_000, async () => {
    const { response } = await openai(2).chat.completions.create({ model: MODEL, messages: user }).withResponse();
    return response.headers.has('sunset') ? response.headers : undefined;
  });
  expect([told.get('deprecation'), told.get('sunset')]).toEqual(['@1769817600', 'Sat, 30 Jun 2046 00:00:00 GMT']);
  await cluster.gateway.admin('DELETE', one);
});

it('an engine’s own conflict is told as it is', async () => {
  const asking = openai(0).chat.completions.create({
    model: MODEL,
    messages: user,
    stand_in: { status: 409 },
  } as never);
  await expect(asking).rejects.toBeInstanceOf(OpenAI.ConflictError);
});

it('whom the body trusts may see it, and no one else: the client says that for a body that is not read', async () => {
  const token = await cluster.gateway.createJoinToken('psi', 'merlin');
  await startAgent({ gateways: [cluster.gateway.url], token, engineUrl: cluster.engine.url });
  await cluster.gateway.serving(2);
  const listed = await cluster.ask(`/v1/otela/seal?model=${encodeURIComponent(MODEL)}&provider=psi`);
  expect(await listed.json()).toMatchObject({ data: [{ provider: 'psi' }] });
  const fetching = sealedFetch({ pins: undefined });
  const ask = (trusted: unknown, headers: Record<string, string> = {}) =>
    fetching(`${cluster.base}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${cluster.key}`, ...headers },
      body: JSON.stringify({ model: MODEL, messages: user, metadata: { otela_trusted_providers: trusted } }),
    });
  for (const provider of ['lab', 'psi', 'lab', 'psi', 'lab', 'psi'])
    expect((await ask(provider)).headers.get('x-otela-provider')).toBe(provider);
  for (const refused of [ask('lab', { 'x-otela-trusted-providers': 'psi' }), ask(['lab']), ask('läb')])
    await expect(refused).rejects.toEqual(expect.objectContaining({ code: 'not_sealable' }));
});
