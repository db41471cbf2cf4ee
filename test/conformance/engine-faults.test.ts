/** Broken engines: each fault gives a clear error, and a good request right after it still works. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { endAll, eventually, temporaryDirectory } from '../support/processes.ts';
import {
  chatBody,
  envelopeOf,
  MODEL,
  openTestCluster,
  stillServes,
  type TestCluster,
} from '../support/test-cluster.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);
afterEach(async () => expect(await stillServes(cluster)).toBe(200));

it('an engine that closes before its answer is 502 upstream_error, and is not asked by a second attempt of the same request', async () => {
  cluster.engine.control({ fault: 'reset-before-head' });
  const before = cluster.engine.requests.length;
  const response = await cluster.ask('/v1/chat/completions', chatBody());
  expect(response.status).toBe(502);
  // To the agent, an engine that resets immediately looks like a stale connection, so it sends the request once more.
  expect(cluster.engine.requests.length - before).toBeLessThanOrEqual(2);
  expect((await envelopeOf(response)).code).toBe('upstream_error');
});

it('an engine that answers bytes which are no HTTP is 502', async () => {
  cluster.engine.control({ fault: 'garbage' });
  const response = await cluster.ask('/v1/chat/completions', chatBody());
  expect(response.status).toBe(502);
  expect((await envelopeOf(response)).code).toBe('upstream_error');
});

it.each(['reset', 'close'] as const)(
  'an unary answer that breaks off (%s) in its body is 502, never half an answer',
  async (fault) => {
    cluster.engine.control({ fault });
    const response = await cluster.ask('/v1/chat/completions', chatBody());
    expect(response.status).toBe(502);
    expect((await envelopeOf(response)).code).toBe('upstream_error');
  },
);

/** The text of a stream that the engine breaks after the client has a part of the answer. */
async function brokenStream(path: string, fault: 'reset' | 'close' | 'end'): Promise<string> {
  // A reset discards bytes that the agent has not read, so the engine waits until the client has a part.
  const faultGate = join(await temporaryDirectory('otela-gate'), 'open');
  const engine = { fault, afterTokens: 5, faultGate, tokens: 50, tokensPerSecond: 50 };
  const response = await cluster.ask(path, chatBody(engine, { stream: true, max_tokens: 50 }));
  expect(response.status).toBe(200);
  let text = '';
  for await (const piece of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += piece;
    if (text.includes(' stand-in')) await writeFile(faultGate, '');
  }
  return text;
}

it.each(['reset', 'close', 'end'] as const)(
  'a chat stream that breaks off (%s) ends with an error event and without [DONE]',
  async (fault) => {
    const text = await brokenStream('/v1/chat/completions', fault);
    const events = text.split('\n\n').filter((event) => event.startsWith('data: '));
    expect(text).not.toContain('[DONE]');
    expect(JSON.parse(events.at(-1)?.slice('data: '.length) ?? '')).toMatchObject({
      error: { code: 'upstream_error' },
    });
  },
);

it('a messages stream that breaks off ends with Anthropic’s error event', async () => {
  const text = await brokenStream('/v1/messages', 'reset');
  expect(text).toMatch(/event: error\ndata: \{"type":"error","error":\{.*\}\}\n\n$/);
  expect(text).not.toContain('message_stop');
});

it('an engine that never answers is 504 upstream_timeout after the model’s own limit, and is told to stop', async () => {
  await cluster.gateway.admin('PUT', `models/${MODEL}`, { first_byte_ms: 1_500, stall_ms: 1_500 });
  cluster.engine.control({ fault: 'never' });
  const response = await eventually('the limit is known everywhere', 15_000, async () => {
    const answer = await cluster.ask('/v1/chat/completions', chatBody(), { signal: AbortSignal.timeout(6_000) });
    return answer.status === 504 ? answer : undefined;
  });
  expect((await envelopeOf(response)).code).toBe('upstream_timeout');
  const last = cluster.engine.requests.at(-1);
  await cluster.engine.when(
    (request) => request.id === last?.id && request.abortedAt !== undefined,
    2_000,
    'the abort',
  );
});

it('an engine that stalls in mid-stream ends as upstream_timeout in the stream, without [DONE]', async () => {
  const response = await cluster.ask(
    '/v1/chat/completions',
    chatBody({ fault: 'stall', afterTokens: 3, tokens: 50 }, { stream: true }),
  );
  const text = await response.text();
  expect(text).not.toContain('[DONE]');
  expect(text).toContain('upstream_timeout');
  await cluster.gateway.admin('DELETE', `models/${MODEL}`);
});
