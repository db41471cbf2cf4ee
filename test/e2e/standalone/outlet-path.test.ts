/** That streams leave by the outlet of a whole gateway, and what does not. */
import { request } from 'node:http';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chatBody, type House, openHouse } from '../../support/house.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { dial, postBytes } from '../../support/raw.ts';

let house: House;
beforeAll(async () => {
  house = await openHouse();
});
afterAll(endAll);

interface Seen {
  marker: string | undefined;
  length: string | undefined;
  text: string;
}

/** Asks workerd itself, past the process that owns the public socket. */
function askRuntime(body: object, more: Record<string, string> = {}): Promise<Seen> {
  const headers = { authorization: `Bearer ${house.key}`, 'content-type': 'application/json', ...more };
  const socketPath = join(house.gateway.data, 'run', 'workerd.sock');
  return new Promise((resolve, reject) => {
    const asking = request({ socketPath, path: '/v1/chat/completions', method: 'POST', headers }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (piece: string) => {
        text += piece;
      });
      const marker = String(response.headers['x-otela-outlet'] ?? '');
      const length = response.headers['content-length'];
      response.on('end', () => resolve({ marker: marker === '' ? undefined : marker, length, text }));
      response.on('error', reject);
    });
    asking.on('error', reject).end(JSON.stringify(body));
  });
}

const paced = { tokens: 40, tokensPerSecond: 100 };

describe('a stream', () => {
  it('comes from workerd as its first data, and an error for whoever would take that for all; the engine is let go', async () => {
    const { marker, length, text } = await askRuntime(
      chatBody({ tokens: 5_000, tokensPerSecond: 100 }, { stream: true }),
    );
    const [secret, session, number, first] = marker?.split(' ') ?? [];
    expect(secret).toMatch(/^[0-9a-f]{32}$/);
    expect(session).toMatch(/^[a-z2-7]{26}$/);
    expect(Number(number)).toBeGreaterThan(0);
    expect(Number(length)).toBe(Buffer.byteLength(text));
    const bytes = Buffer.from(text);
    expect(String(bytes.subarray(0, Number(first)))).toContain('"delta"');
    expect(String(bytes.subarray(Number(first)))).toMatch(/^data: \{"error":/);
    expect(text).not.toContain('[DONE]');
    await eventually('the engine is let go', 3_000, () => (house.engine.running() === 0 ? true : undefined));
  });

  it('has all of it at the public socket, and nothing of how it came there', async () => {
    const response = await house.ask('/v1/chat/completions', chatBody(paced, { stream: true }));
    expect(response.headers.get('x-otela-outlet')).toBeNull();
    expect(response.headers.get('content-length')).toBeNull();
    expect(response.headers.get('x-otela-node')).toMatch(/^[a-z2-7]{26}$/);
    const text = await response.text();
    expect(text.match(/"delta"/g)?.length).toBeGreaterThanOrEqual(40);
    expect(text.trimEnd().endsWith('data: [DONE]')).toBe(true);
    expect(text).not.toContain('"error"');
  });

  it('that may go on at another node, and an answer that is there at once, pass workerd', async () => {
    const goesOn = await askRuntime(chatBody(paced, { stream: true }), { 'x-otela-resume': '1' });
    expect(goesOn.marker).toBeUndefined();
    expect(goesOn.text).toContain('[DONE]');
    const unary = await askRuntime(chatBody({ tokens: 3 }));
    expect(unary.marker).toBeUndefined();
    expect(JSON.parse(unary.text)).toMatchObject({ usage: { completion_tokens: 3 } });
  });
});

/** Requests that are over, by our error; -1: some are not. */
async function counted(): Promise<Record<string, number>> {
  const headers = { authorization: `Bearer ${house.gateway.adminKey}` };
  const text = await (await fetch(new URL('/metrics', house.gateway.url), { headers })).text();
  if (!/^otela_requests_in_flight(\{.*\})? 0$/m.test(text)) return { '': -1 };
  const lines = text.matchAll(/^otela_requests_total\{.*"200",error="(\w*)"\} (\d+)$/gm);
  return Object.fromEntries([...lines].map(([, error = '', count]) => [error, Number(count)]));
}

it('what leaves is counted as what it was: whole, broken or left', async () => {
  const before = await eventually('nothing is in flight', 5_000, async () => {
    const now = await counted();
    return now[''] === -1 ? undefined : now;
  });
  const stream = (standIn: object, init: RequestInit = {}) =>
    house.ask('/v1/chat/completions', chatBody(standIn, { stream: true }), init);
  expect(await (await stream(paced)).text()).toContain('[DONE]');
  const broken = await (await stream({ ...paced, fault: 'close', afterTokens: 20 })).text();
  expect(broken).toContain('"upstream_error"');
  expect(broken).not.toContain('[DONE]');
  const control = new AbortController();
  const left = await stream({ tokens: 5_000, tokensPerSecond: 50 }, { signal: control.signal });
  await left.body?.getReader().read();
  control.abort();
  await eventually('the engine is let go', 2_000, () => (house.engine.running() === 0 ? true : undefined));
  const more = Object.fromEntries(
    ['', 'upstream_error', 'client_left'].map((error) => [error, (before[error] ?? 0) + 1]),
  );
  await eventually('each is counted', 5_000, async () => {
    const now = await counted();
    return Object.keys(more).every((error) => now[error] === more[error]) ? true : undefined;
  });
});

it('a stream that is asked for before another one’s end comes whole behind it, however long that takes', async () => {
  const socket = await dial(house.gateway.url);
  let heard = '';
  socket.on('data', (piece) => {
    heard += piece;
  });
  const body = chatBody({ tokens: 50, tokensPerSecond: 100 }, { stream: true });
  const asked = postBytes(`${house.gateway.url}/v1/chat/completions`, { authorization: `Bearer ${house.key}` }, body);
  socket.write(asked + asked);
  const ends = () => heard.split('[DONE]').length - 1;
  await eventually('both', 10_000, () => (ends() === 2 || socket.destroyed ? true : undefined));
  expect([ends(), heard.split('HTTP/1.1 200').length - 1]).toEqual([2, 2]);
  socket.destroy();
});
