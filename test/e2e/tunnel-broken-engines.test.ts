/** Engines that break off, fall silent or do not begin, and the error that the client gets. */
import { describe, expect, it } from 'vitest';
import { promise } from '../support/patience.ts';
import { chatBody, envelopeOf } from '../support/test-cluster.ts';
import { OwnNode } from '../support/tunnel/own-node.ts';

const own = new OwnNode();

const unary = (standIn: object, more: object = {}) =>
  chatBody({ id: 'same', ...standIn }, { model: own.model, ...more });
const stream = (standIn: object) => unary(standIn, { stream: true });
const chat = (body: object) => own.shop.ask('/v1/chat/completions', body);

/** The tokens of a stream, and its error if it has one. */
function readStream(text: string): { tokens: number; error: unknown; done: boolean } {
  const data = [...text.matchAll(/^data: (.*)$/gm)].map(([, json = '']) => json);
  const events = data.filter((json) => json !== '[DONE]').map((json): unknown => JSON.parse(json));
  const has = (event: unknown, key: string) => typeof event === 'object' && event !== null && key in event;
  const tokens = events.filter(
    (event) =>
      JSON.stringify(event).includes('"delta":{"content":" ') ||
      JSON.stringify(event).includes('"delta":{"content":"This"'),
  );
  return {
    tokens: tokens.length,
    error: events.find((event) => has(event, 'error')),
    done: data.includes('[DONE]'),
  };
}

describe('an engine that breaks off in mid-stream', () => {
  it.each(['reset', 'close'] as const)(
    '(%s): the client gets what came, an error in-band, and no [DONE]',
    async (fault) => {
      const response = await chat(stream({ tokens: 50, fault, afterTokens: 30, tokensPerSecond: 100 }));
      expect(response.status).toBe(200);
      const { tokens, error, done } = readStream(await response.text());
      // A reset discards what the kernel had not delivered yet: on a busy machine, that may be most of it.
      expect(tokens).toBeGreaterThanOrEqual(fault === 'close' ? 30 : 1);
      expect(error).toMatchObject({ error: { code: 'upstream_error', type: 'server_error' } });
      expect(done).toBe(false);
      const [record] = await own.shop.settled(own.bench, 1);
      expect(record).toMatchObject({ complete: false, aborted: false, estimated: true });
      expect(record?.completion).toBeGreaterThanOrEqual(tokens);
      await own.shop.rest(own.bench);
      expect(await own.shop.usage(own.bench)).toHaveLength(1);
      expect(own.bench.engine.requests).toHaveLength(1);
    },
  );

  it('falls silent: the client is told of a time-out in-band', async () => {
    await own.shop.admin('PUT', `models/${own.model}`, { stall_ms: promise(700), first_byte_ms: null });
    await own.shop.refreshed();
    const response = await chat(stream({ tokens: 50, fault: 'stall', afterTokens: 5 }));
    const { tokens, error, done } = readStream(await response.text());
    expect(tokens).toBe(5);
    expect(error).toMatchObject({ error: { code: 'upstream_timeout' } });
    expect(done).toBe(false);
    await own.bench.engine.when(({ abortedAt }) => abortedAt !== undefined, 2_000);
    await own.shop.rest(own.bench);
    expect(await own.shop.usage(own.bench)).toHaveLength(1);
  });
});

describe('an engine that does not begin', () => {
  it('but sends the head of a stream at once, as vLLM does: what counts is the time to the first data', async () => {
    await own.shop.admin('PUT', `models/${own.model}`, { first_byte_ms: null, stall_ms: promise(500) });
    await own.shop.refreshed();
    const text = await (await chat(stream({ earlyHead: true, delayMs: promise(3_000), tokens: 5 }))).text();
    expect(readStream(text)).toMatchObject({ tokens: 5, done: true, error: undefined });
    await own.shop.admin('PUT', `models/${own.model}`, { first_byte_ms: promise(600), stall_ms: null });
    await own.shop.refreshed();
    const response = await chat(stream({ earlyHead: true, delayMs: 60_000 }));
    expect(response.status).toBe(504);
    expect((await envelopeOf(response)).code).toBe('upstream_timeout');
  });
});

it('none of it was an error inside the gateway', () => {
  expect(own.shop.logs()).toEqual([]);
});
