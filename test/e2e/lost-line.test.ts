/**
 * The network between an agent and its gateway drops every packet, and no socket closes: the gateway detects it, and
 * the client gets comments meanwhile.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { text as wordsOf } from '../support/engine/words.ts';
import { promise } from '../support/patience.ts';
import { endAll, eventually } from '../support/processes.ts';
import { hear } from '../support/streams.ts';
import { type Bench, openTunnelBench, type TunnelBench } from '../support/tunnel/tunnel-bench.ts';

/**
 * Maximum time until the loss is detected: a probe after 5 s, the connection is given up 12 s later, and the agent may
 * claim its streams for 10 s.
 */
const FOUND_OUT_MS = 27_000 + promise(5_000);
/** Maximum time until the client gets a comment: two intervals of silence. */
const TOLD_MS = 8_000 + promise(5_000);
const TOKENS = 40;

let shop: TunnelBench;
beforeAll(async () => {
  shop = await openTunnelBench();
});
afterAll(endAll);

interface Stream {
  text: string;
  /** Time of the first comment. */
  pingedAt: number | undefined;
  over: Promise<void>;
}

/** Opens a stream, and waits until it has sent `tokens` tokens. */
async function begun(model: string, headers: Record<string, string> = {}, tokens = 8): Promise<Stream> {
  const body = { model, stream: true, messages: [{ role: 'user', content: 'Say something.' }] };
  const response = await shop.ask('/v1/chat/completions', body, { headers });
  expect(response.status).toBe(200);
  const decoder = new TextDecoder();
  const stream: Stream = { text: '', pingedAt: undefined, over: Promise.resolve() };
  const read = async () => {
    for await (const piece of response.body ?? []) {
      stream.text += decoder.decode(piece, { stream: true });
      if (stream.text.includes(': ping')) stream.pingedAt ??= Date.now();
    }
  };
  stream.over = read();
  await eventually('it has begun', 5_000, () => (hear(stream.text).textChunks >= tokens ? true : undefined));
  return stream;
}

const asked = (bench: Bench) => bench.engine.requests.some(({ url }) => url.endsWith('/completions'));

it.concurrent('a stream that may be continued says so within seconds, and goes on at another node', async () => {
  const nodes = [await shop.addNode({ models: ['lost'] }), await shop.addNode({ models: ['lost'] })];
  for (const { engine } of nodes) engine.control({ tokens: TOKENS, pauseAfter: 8 });
  const stream = await begun('lost', { 'x-otela-resume': '1' });
  const lost = nodes.find(asked);
  for (const node of nodes) if (node !== lost) node.engine.control({ tokens: TOKENS });
  lost?.path.hold();
  const lostAt = Date.now();
  await stream.over;
  expect(Date.now() - lostAt).toBeLessThan(FOUND_OUT_MS);
  expect((stream.pingedAt ?? Number.NaN) - lostAt).toBeLessThan(TOLD_MS);
  const { text, errors, dones } = hear(stream.text);
  expect({ text, errors, dones }).toEqual({ text: wordsOf(TOKENS), errors: [], dones: 1 });
});

it.concurrent('any other stream ends with an error, and does not wait for its own time-out', async () => {
  const node = await shop.addNode({ models: ['lost-alone'] });
  node.engine.control({ tokens: TOKENS, pauseAfter: 8 });
  const stream = await begun('lost-alone');
  node.path.hold();
  const lostAt = Date.now();
  await stream.over;
  expect(Date.now() - lostAt).toBeLessThan(FOUND_OUT_MS);
  expect(stream.text).toContain('"code":"upstream_error"');
  expect(stream.text).not.toContain('[DONE]');
});

it.concurrent('an engine that pauses for longer than that is no lost line', async () => {
  const node = await shop.addNode({ models: ['thinks'] });
  node.engine.control({ tokens: 2, tokensPerSecond: 1 / 22 });
  const stream = await begun('thinks', { 'x-otela-resume': '1' }, 1);
  await stream.over;
  expect(hear(stream.text)).toMatchObject({ text: wordsOf(2), errors: [], dones: 1 });
  expect(node.path.connections).toBe(1);
});
