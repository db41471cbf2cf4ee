/** Reasoning budgets: what reaches engines that support them, and engines that do not. */
import { afterAll, expect, it } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { chatBody, envelopeOf, openTestCluster } from '../support/test-cluster.ts';

afterAll(endAll);

it('the least of what request, key and project say reaches engines that take a budget, and no engine that takes none gets the request', async () => {
  const cluster = await openTestCluster({ agentArgs: ['--label', 'reasoning-budget=thinking_token_budget'] });
  const plain = await startEngine({ models: ['plain'] });
  atEnd(() => plain.close());
  const calm = await startEngine({ models: ['calm'] });
  atEnd(() => calm.close());
  await startAgent({ gateways: [cluster.gateway.url], token: cluster.token, engineUrl: plain.url });
  const args = ['--label', 'reasoning-budget=none'];
  await startAgent({ gateways: [cluster.gateway.url], token: cluster.token, engineUrl: calm.url, args });
  await cluster.gateway.serving(3);
  const limited = await cluster.gateway.createKey('limited', { limits: { reasoning_tokens_per_request: 500 } });
  const ask = (headers: Record<string, string>, more: object = {}) =>
    cluster.ask('/v1/chat/completions', chatBody({}, more), { headers });
  const told = async (headers: Record<string, string>, more: object = {}) => {
    const response = await ask(headers, more);
    expect(response.status, await response.text()).toBe(200);
    return JSON.parse(cluster.engine.requests.at(-1)?.bodyStart ?? '').thinking_token_budget;
  };
  const withKey = { authorization: `Bearer ${limited}` };
  expect(await told({})).toBeUndefined();
  expect(await told({ 'x-otela-reasoning-budget': '100' })).toBe(100);
  expect(await told(withKey)).toBe(500);
  expect(await told({ ...withKey, 'x-otela-reasoning-budget': '100' }, { stream: true })).toBe(100);
  expect(await told({ ...withKey, 'x-otela-reasoning-budget': '9000' })).toBe(500);
  expect(await told(withKey, { thinking_token_budget: 20 })).toBe(20);
  expect(await told(withKey, { thinking_token_budget: -1 })).toBe(500);

  for (const headers of [{ 'x-otela-reasoning-budget': '100' }, withKey]) {
    const refused = await ask(headers, { model: 'plain' });
    expect([refused.status, (await envelopeOf(refused)).code]).toEqual([412, 'requirement_not_met']);
    expect((await ask(headers, { model: 'calm' })).status).toBe(200);
  }
  expect(calm.requests.at(-1)?.bodyStart).not.toContain('thinking_token_budget');
  expect(plain.requests).toEqual([]);
  expect((await ask({}, { model: 'plain' })).status).toBe(200);
  const responses = await cluster.ask('/v1/responses', { model: 'stand-in/model-1', input: 'x' }, { headers: withKey });
  expect(responses.status).toBe(412);
  const vectors = await cluster.ask('/v1/embeddings', { model: 'plain', input: 'x' }, { headers: withKey });
  expect(vectors.status).toBe(200);

  expect((await ask({ 'x-otela-reasoning-budget': 'much' })).status).toBe(400);
  const past = await ask({ ...withKey, 'x-otela-model': 'stand-in/model-1' });
  expect([past.status, (await envelopeOf(past)).code]).toEqual([403, 'permission_denied']);
});
