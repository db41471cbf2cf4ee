/**
 * Prefill and decode engines: each decode engine is a node. Its agent chooses a prefill engine for each request. The engines are mocks; keys and values
 * are sent over HTTP.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { prompts } from '../support/engine/kv-transfer.ts';
import { type Engine, startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { chatBody, MODEL } from '../support/test-cluster.ts';

afterEach(endAll);

interface Pair {
  gateway: Gateway;
  key: string;
  prefill: Engine;
  decode: Engine;
  ask(body: object): Promise<Response>;
}

async function openPair(form: 'vllm' | 'sglang'): Promise<Pair> {
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const [prefill, decode] = await Promise.all([
    startEngine({ models: [MODEL], form, role: 'prefill' }),
    startEngine({ models: [MODEL], form, role: 'decode' }),
  ]);
  atEnd(() => prefill.close());
  atEnd(() => decode.close());
  const args = ['--prefill-url', prefill.url, '--prefill-bootstrap-port', String(prefill.port)];
  await startAgent({ gateways: [gateway.url], token, engineUrl: decode.url, args });
  await gateway.serving(1);
  const ask = (body: object) =>
    fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  return { gateway, key, prefill, decode, ask };
}

describe.each([
  { engines: 'vLLM', form: 'vllm' as const },
  { engines: 'SGLang', form: 'sglang' as const },
])('a pair of $engines engines', ({ form }) => {
  it('serves streams and whole answers as one node, each prompt computed by the prefill engine', async () => {
    const { gateway, key, prefill, decode, ask } = await openPair(form);
    const nodes = await fetch(`${gateway.url}/v1/registry/nodes`, { headers: { authorization: `Bearer ${key}` } });
    const { data }: { data: { models: unknown[] }[] } = JSON.parse(await nodes.text());
    expect(data.filter(({ models }) => models.length > 0)).toHaveLength(1);

    const whole = await ask(chatBody({ tokens: 5 }, { max_tokens: 5, min_tokens: 2 }));
    expect(whole.status).toBe(200);
    expect(JSON.parse(await whole.text())).toMatchObject({ usage: { completion_tokens: 5 } });
    const stream = await ask(chatBody({ tokens: 3 }, { stream: true }));
    expect(stream.status).toBe(200);
    expect(await stream.text()).toMatch(/data: \[DONE\]\s*$/);

    expect(decode.received()).toBe(2);
    expect(prompts(prefill.requests)).toHaveLength(2);
    expect(prompts(decode.requests)).toHaveLength(2);
    const rooms = prompts(prefill.requests).map(({ bodyStart }) => /"bootstrap_room":(\d+)/.exec(bodyStart)?.[1]);
    if (form === 'sglang') expect(new Set(rooms).size).toBe(2);
    else
      for (const { bodyStart } of prompts(prefill.requests))
        expect(JSON.parse(bodyStart)).toMatchObject({ max_tokens: 1, min_tokens: 0, stream: false });
  });

  it("does not let a client name another request's keys and values", async () => {
    const { prefill, decode, ask } = await openPair(form);
    const stolen =
      form === 'sglang'
        ? { bootstrap_room: 7, bootstrap_host: '127.0.0.1', bootstrap_port: prefill.port }
        : { kv_transfer_params: { remote_block_ids: ['x'], remote_host: '127.0.0.1', remote_port: prefill.port } };
    const answer = await ask(chatBody({ tokens: 1 }, stolen));
    // Each request gets its own keys and values: a mock that gets those of another request returns 500.
    expect(answer.status).toBe(200);
    expect(decode.received()).toBe(1);
  });

  it('relays the refusal of a bad request', async () => {
    const { ask } = await openPair(form);
    const answer = await ask(chatBody({ status: 422 }));
    expect(answer.status).toBe(422);
  });
});

it('a vLLM pair whose prefill engine fails a request answers all the same', async () => {
  const { prefill, decode, ask } = await openPair('vllm');
  prefill.control({ status: 500 }, 1);
  const answer = await ask(chatBody({ tokens: 2 }));
  expect(answer.status).toBe(200);
  expect(decode.received()).toBe(0);
  expect((await ask(chatBody({ tokens: 2 }))).status).toBe(200);
  expect(decode.received()).toBe(1);
});

it('a client that leaves ends the prefill', async () => {
  const { prefill, key, gateway } = await openPair('vllm');
  prefill.control({ delayMs: 60_000 }, 1);
  const client = new AbortController();
  const asked = fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(chatBody({}, { stream: true })),
    signal: client.signal,
  }).catch(() => undefined);
  await prefill.when(({ url, abortedAt }) => url.startsWith('/v1/chat') && abortedAt === undefined, 10_000);
  client.abort();
  await asked;
  await prefill.when(({ url, abortedAt }) => url.startsWith('/v1/chat') && abortedAt !== undefined, 10_000);
});

it('two nodes with the same three prefill engines pair them by request, and go on without one', async () => {
  const gateway = await Gateway.start();
  const [key, ...tokens] = await Promise.all([
    gateway.createKey(),
    gateway.createJoinToken(),
    gateway.createJoinToken(),
  ]);
  const made = (role: 'prefill' | 'decode', count: number) =>
    Promise.all(Array.from({ length: count }, () => startEngine({ models: [MODEL], form: 'vllm', role })));
  const [prefills, decodes] = await Promise.all([made('prefill', 3), made('decode', 2)]);
  for (const engine of [...prefills, ...decodes]) atEnd(() => engine.close());
  const args = prefills.flatMap(({ url }) => ['--prefill-url', url]);
  await Promise.all(
    decodes.map(({ url }, n) => startAgent({ gateways: [gateway.url], token: tokens[n] ?? '', engineUrl: url, args })),
  );
  await gateway.serving(2);
  const ask = async () => {
    const response = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(chatBody({ tokens: 2 })),
    });
    await response.text();
    return response.status;
  };
  const asked = async () => new Set(await Promise.all(Array.from({ length: 24 }, ask)));
  const computed = () => prefills.map(({ requests }) => prompts(requests).length);
  expect(await asked()).toEqual(new Set([200]));
  expect(computed().reduce((sum, one) => sum + one, 0)).toBe(24);
  expect(Math.min(...computed())).toBeGreaterThanOrEqual(4);
  expect(decodes.map((one) => one.received() > 0)).toEqual([true, true]);

  await prefills[0]?.close();
  const before = computed();
  expect(await asked()).toEqual(new Set([200]));
  const more = computed().map((count, n) => count - (before[n] ?? 0));
  expect(more[0]).toBe(0);
  expect(Math.min(more[1] ?? 0, more[2] ?? 0)).toBeGreaterThanOrEqual(4);
});

it('a pair whose prefill engine is gone takes no more requests', async () => {
  const { prefill, decode, gateway, ask } = await openPair('vllm');
  await gateway.admin('PATCH', 'settings', { queue: { unary_ms: 0 } });
  await prefill.close();
  await gateway.serving(0);
  const refused = await ask(chatBody({ tokens: 2 }));
  expect([refused.status, decode.requests.filter(({ method }) => method === 'POST')]).toEqual([503, []]);
});
