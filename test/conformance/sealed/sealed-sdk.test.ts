/** What SDKs do beside asking, sealed: Anthropic's own client, retries, and other names of models. test/conformance/openai-sdk.test.ts has the rest. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type SealOptions, sealedFetch } from '../../../clients/seal/index.ts';
import { type House, MODEL, openHouse } from '../../support/house.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { type ProviderRoot, providerRoot } from '../../support/provider-root.ts';

const WORD = 'canary-sdk-6b20';
const user = [{ role: 'user' as const, content: WORD }];
let house: House;
let root: ProviderRoot;

beforeAll(async () => {
  root = await providerRoot('lab');
  house = await openHouse({ agentArgs: ['--delegate-file', root.delegateFile] });
});
afterAll(endAll);

const sealed = (more: SealOptions = {}) => sealedFetch({ pins: { [root.provider]: root.pin }, ...more });
const anthropic = () =>
  new Anthropic({ baseURL: house.gateway.url, authToken: house.key, apiKey: null, maxRetries: 0, fetch: sealed() });
const openai = (maxRetries: number, more: SealOptions = {}) =>
  new OpenAI({ baseURL: house.base, apiKey: house.key, maxRetries, fetch: sealed(more) });

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
  expect(house.gateway.process.output).not.toContain(WORD);
});

it('a request that the only engine broke off is sealed again by the SDK’s retry, and answered', async () => {
  const before = house.engine.requests.length;
  house.engine.control({ fault: 'reset', afterTokens: 2 }, 1);
  const answer = await openai(2).chat.completions.create({ model: MODEL, messages: user });
  expect(answer.choices[0]?.message.content).toContain('stand-in');
  expect(house.engine.requests.length - before).toBe(2);
});

it('another name of a model is refused before anything is sent, or taken where the caller allows it', async () => {
  await house.gateway.admin('PUT', `models/${encodeURIComponent(MODEL)}`, { aliases: ['fast'] });
  const ask = (more: SealOptions) => openai(0, more).chat.completions.create({ model: 'fast', messages: user });
  await eventually('the alias is known', 20_000, async () => {
    const before = house.engine.requests.length;
    const error: unknown = await ask({}).catch((caught: unknown) => caught);
    expect(house.engine.requests.length).toBe(before);
    const cause = error instanceof Error ? error.cause : undefined;
    return (typeof cause === 'object' && cause !== null && 'code' in cause && cause.code === 'alias') || undefined;
  });
  const answer = await ask({ aliases: true });
  expect([answer.model, answer.choices.length]).toEqual([MODEL, 1]);
});

it('a key that may use some models alone may seal to them, and to no other', async () => {
  const key = await house.gateway.createKey('few', { models: [MODEL] });
  const ask = (model: string) =>
    sealed()(`${house.base}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
      body: JSON.stringify({ model, messages: user }),
    });
  expect((await ask(MODEL)).status).toBe(200);
  expect((await ask('nobody/serves-this')).status).toBe(403);
});
