/**
 * A client that disconnects stops the engine's work within a second, in each phase and with each way in which ordinary
 * clients disconnect.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { EngineRequest } from '../../support/engine.ts';
import { type Asking, LEAVERS } from '../../support/leavers.ts';
import { promise } from '../../support/patience.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { dial, postBytes, sendUntilHeld } from '../../support/raw.ts';
import { chatBody, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

const WITHIN_MS = promise(1_000);
let cluster: TestCluster;

beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);

/**
 * Sends a request, waits until the engine reaches `phase`, and disconnects. Returns the milliseconds until the engine's
 * abort.
 */
async function leaveAt(ask: () => Promise<Asking>, phase: (request: EngineRequest) => boolean): Promise<number> {
  const before = cluster.engine.requests.at(-1)?.id ?? 0;
  const asking = await ask();
  const mine = await cluster.engine.when((request) => request.id > before, 5_000, 'the request');
  await eventually('the engine is at that phase', 10_000, () => phase(mine) || undefined);
  expect(mine.abortedAt).toBeUndefined();
  const leftAt = Date.now();
  await asking.leave();
  const aborted = await cluster.engine.when(
    (request) => request.id === mine.id && request.abortedAt !== undefined,
    5_000,
    'the abort',
  );
  return (aborted.abortedAt ?? Number.POSITIVE_INFINITY) - leftAt;
}

describe.each(Object.entries(LEAVERS))('%s', (_, leaver) => {
  const ask = (body: Record<string, unknown>) => () => leaver({ url: cluster.gateway.url, key: cluster.key, body });

  it('before the first byte of a stream', async () => {
    const body = chatBody({ delayMs: 20_000 }, { stream: true });
    expect(await leaveAt(ask(body), (request) => request.bodySha256 !== '')).toBeLessThanOrEqual(WITHIN_MS);
  });

  it('in the middle of a stream', async () => {
    const body = chatBody({ tokens: 10_000, tokensPerSecond: 20 }, { stream: true });
    expect(await leaveAt(ask(body), (request) => request.tokensSent >= 5)).toBeLessThanOrEqual(WITHIN_MS);
  });

  it('in the middle of a stream that is silent for the moment', async () => {
    const body = chatBody({ tokens: 10_000, fault: 'stall', afterTokens: 3 }, { stream: true });
    expect(await leaveAt(ask(body), (request) => request.tokensSent >= 3)).toBeLessThanOrEqual(WITHIN_MS);
  });

  it('while an unary answer is being made', async () => {
    const body = chatBody({ tokens: 1_000, tokensPerSecond: 20 });
    expect(await leaveAt(ask(body), (request) => request.bodySha256 !== '')).toBeLessThanOrEqual(WITHIN_MS);
  });

  it('while it waits for a node: an agent that does not take the opening', async () => {
    const agent = cluster.agents[0];
    if (agent === undefined) throw new Error('no agent');
    const inFlight = (count: number) =>
      eventually(`${count} in flight`, 5_000, async () =>
        (await cluster.gateway.metric('otela_requests_in_flight')) === count ? true : undefined,
      );
    await inFlight(0);
    const before = cluster.engine.requests.at(-1)?.id ?? 0;
    agent.signal('SIGSTOP');
    try {
      const asking = await ask(chatBody({ delayMs: 60_000 }, { stream: true }))();
      await inFlight(1);
      await asking.leave();
      await inFlight(0);
    } finally {
      agent.signal('SIGCONT');
    }
    await cluster.gateway.serving(1);
    // It arrives on the same socket, so after everything that was sent for the disconnected client.
    const next = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 }), {
      headers: { 'x-request-id': 'next' },
    });
    expect(next.status).toBe(200);
    await next.text();
    const late = cluster.engine.requests.filter((request) => request.id > before);
    expect(late.filter(({ headers }) => headers['x-request-id'] === 'next')).toHaveLength(1);
    await eventually('no work for nobody', WITHIN_MS, () => (cluster.engine.running() === 0 ? true : undefined));
  });
});

it('about the time of the first token, when the answer is on its way', async () => {
  const body = chatBody({ tokens: 10_000, tokensPerSecond: 100, delayMs: 8 }, { stream: true });
  const late: number[] = [];
  for (let n = 0; n < 60; n++) {
    const before = cluster.engine.requests.at(-1)?.id ?? 0;
    const socket = await dial(cluster.gateway.url);
    socket.write(
      postBytes(`${cluster.gateway.url}/v1/chat/completions`, { authorization: `Bearer ${cluster.key}` }, body),
    );
    const { id } = await cluster.engine.when((request) => request.id > before, 5_000, 'the request');
    // From before the engine's first token until the token must have arrived here, a little later each time.
    await new Promise((resolve) => setTimeout(resolve, 4 + (n % 10)));
    socket.destroy();
    const leftAt = Date.now();
    const aborted = (request: EngineRequest) => request.id === id && request.abortedAt !== undefined;
    const { abortedAt = Number.NaN } = await cluster.engine.when(aborted, 5_000, 'the abort');
    if (!(abortedAt - leftAt <= WITHIN_MS)) late.push(abortedAt - leftAt);
  }
  expect(late).toEqual([]);
});

describe.each([
  ['in the plainest form', {}],
  ['in another', { te: 'trailers' }],
])('a client that has said more than is read, %s', (_, more) => {
  it('and resets its connection, is missed within a second', async () => {
    const before = cluster.engine.requests.at(-1)?.id ?? 0;
    const socket = await dial(cluster.gateway.url);
    socket.on('error', () => undefined);
    const headers = { authorization: `Bearer ${cluster.key}`, ...more };
    const url = `${cluster.gateway.url}/v1/chat/completions`;
    socket.write(postBytes(url, headers, chatBody({ tokens: 1_000, tokensPerSecond: 20 })));
    const { id } = await cluster.engine.when((request) => request.id > before, 5_000, 'the request');
    await sendUntilHeld(socket);
    socket.resetAndDestroy();
    const leftAt = Date.now();
    const aborted = (request: EngineRequest) => request.id === id && request.abortedAt !== undefined;
    const { abortedAt = Number.NaN } = await cluster.engine.when(aborted, 5_000, 'the abort');
    expect(abortedAt - leftAt).toBeLessThanOrEqual(WITHIN_MS);
  });
});

it('a hundred clients that leave at once leave nothing running', async () => {
  const leaver = LEAVERS['fetch, aborted'];
  if (leaver === undefined) throw new Error('no such client');
  const body = chatBody({ tokens: 10_000, tokensPerSecond: 10 }, { stream: true });
  const before = cluster.engine.requests.at(-1)?.id ?? 0;
  const askings = await Promise.all(
    Array.from({ length: 100 }, () => leaver({ url: cluster.gateway.url, key: cluster.key, body })),
  );
  await cluster.engine.when(() => cluster.engine.running() === 100, 10_000, 'a hundred requests');
  await Promise.all(askings.map((asking) => asking.leave()));
  const mine = () => cluster.engine.requests.filter((request) => request.id > before);
  await eventually('nothing runs', 10_000, () => (cluster.engine.running() === 0 ? true : undefined));
  expect(mine().filter((request) => request.abortedAt !== undefined)).toHaveLength(100);
});
