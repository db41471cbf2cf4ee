import OpenAI from 'openai';
import { afterEach, describe, expect, it } from 'vitest';
import { endAll } from '../../support/processes.ts';
import { chatBody, envelopeOf, MODEL } from '../../support/test-cluster.ts';
import { Village } from './village.ts';

afterEach(endAll);

const MESSAGES = [{ role: 'user' as const, content: 'Say something.' }];

describe('an ingress', () => {
  it('answers from its own engine, unary and as a stream', async () => {
    const village = new Village();
    const one = await village.add();
    const client = new OpenAI({ baseURL: one.url, apiKey: one.key, maxRetries: 0 });
    const unary = await client.chat.completions.create({ model: MODEL, messages: MESSAGES });
    expect(unary.choices[0]?.message.content?.length).toBeGreaterThan(10);
    let text = '';
    const stream = await client.chat.completions.create({ model: MODEL, messages: MESSAGES, stream: true });
    for await (const event of stream) text += event.choices[0]?.delta.content ?? '';
    expect(text).toBe(unary.choices[0]?.message.content);
    expect(village.dialled).toBe(0);
  });

  it('answers from another agent, byte for byte as its engine does', async () => {
    const village = new Village();
    const [here, there] = [await village.add({ engine: false }), await village.add()];
    const body = chatBody({ id: 'same', tokens: 50 }, { stream: true, stream_options: { include_usage: true } });
    const direct = await fetch(`${there.engine?.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const response = await here.ask('/chat/completions', body);
    expect(response.status).toBe(200);
    expect(response.headers.get('x-otela-node')).toBe(there.session);
    expect(response.headers.get('x-otela-provider')).toBe('lab');
    expect(response.headers.get('content-type')).toContain('text/event-stream');
    expect(await response.text()).toBe(await direct.text());
    expect(village.dialled).toBe(1);
  });

  it('uses one channel for many requests, in both directions at once', async () => {
    const village = new Village();
    const [left, right] = [await village.add({ models: ['m-left'] }), await village.add({ models: ['m-right'] })];
    const ask = (from: typeof left, model: string) =>
      from.ask('/chat/completions', { ...chatBody({ tokens: 20, tokensPerSecond: 200 }, { stream: true }), model });
    await (await ask(left, 'm-right')).text();
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, n) => (n % 2 === 0 ? ask(left, 'm-right') : ask(right, 'm-left'))),
    );
    for (const text of await Promise.all(answers.map((answer) => answer.text()))) expect(text).toMatch(/\[DONE\]\n\n$/);
    expect(village.dialled).toBe(1);
  });

  it('says nothing about itself to a stranger', async () => {
    const village = new Village();
    const one = await village.add();
    for (const [path, method] of [
      ['/models', 'GET'],
      ['/chat/completions', 'POST'],
      ['/no/such/thing', 'GET'],
      ['/chat/completions', 'DELETE'],
    ] as const) {
      for (const authorization of ['', 'Bearer wrong', `Bearer ${one.key.slice(0, -1)}`, `Basic ${one.key}`]) {
        const response = await fetch(`${one.url}${path}`, {
          method,
          headers: authorization === '' ? {} : { authorization },
          ...(method === 'POST' ? { body: '{' } : {}),
        });
        expect(response.status).toBe(401);
        expect((await envelopeOf(response)).code).toBe('invalid_api_key');
      }
    }
  });

  it('counts what was used, once per attempt', async () => {
    const village = new Village();
    const [here, there] = [await village.add({ engine: false }), await village.add()];
    await (await here.ask('/chat/completions', chatBody({ tokens: 30 }, { stream: true }))).text();
    const [record] = await here.accounted(1);
    expect(record).toMatchObject({ session: there.session, completion: 30, complete: true, estimated: false });
    expect(there.usage).toEqual([]);
  });
});
