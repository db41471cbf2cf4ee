/**
 * A reader that does not read must cost its sender no memory. WebSockets of Cloudflare's runtime have no backpressure
 * (workerd #988), and `ws` buffers everything that is sent: without credits, 300 MiB sent to a paused peer are 300 MiB
 * of resident memory. Bound: a stream's window is far below 4 MiB, the socket's is 4 MiB. The test allows twenty times
 * that, which leaves enough for a garbage collector and still catches 200 MiB.
 */
import { request as httpRequest } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { memoryOf } from '../support/process-table.ts';
import { endAll, eventually } from '../support/processes.ts';
import { dial, patternStream, postBytes } from '../support/raw.ts';
import { chatBody, MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

const BODY_BYTES = 200 * 1024 * 1024;
const GROWTH_MIB = 80;
/** Duration for which a stall is watched after bytes have stopped flowing. */
const REST_MS = 3_000;

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster();
  // Warm-up: memory that the first requests load does not count as growth.
  for (let n = 0; n < 50; n++) await (await cluster.ask('/v1/chat/completions', chatBody())).text();
});
afterAll(endAll);

function resident(): { gateway: number; agent: number } {
  const [agent] = cluster.agents;
  return {
    gateway: memoryOf(cluster.gateway.process.pid).rssMib,
    agent: memoryOf(agent?.pid ?? 0).rssMib,
  };
}

/** The largest growth of each process during `act`. */
async function growth(act: () => Promise<void>) {
  const before = resident();
  const most = { gateway: 0, agent: 0 };
  const look = () => {
    const now = resident();
    for (const name of ['gateway', 'agent'] as const) most[name] = Math.max(most[name], now[name] - before[name]);
  };
  const timer = setInterval(look, 50);
  try {
    await act();
  } finally {
    clearInterval(timer);
  }
  look();
  return most;
}

function expectBounded(most: { gateway: number; agent: number }, bound = GROWTH_MIB): void {
  console.log(`growth in MiB: gateway ${most.gateway.toFixed(1)}, agent ${most.agent.toFixed(1)}`);
  expect(most.gateway).toBeLessThan(bound);
  expect(most.agent).toBeLessThan(bound);
}

/** Waits until `measure` has not grown for REST_MS. */
async function rest(measure: () => number): Promise<void> {
  let last = -1;
  let since = Date.now();
  await eventually('the flow comes to rest', 40_000, () => {
    if (measure() !== last) {
      last = measure();
      since = Date.now();
    }
    return Date.now() - since > REST_MS ? true : undefined;
  });
}

it('200 MiB from the engine to a client that does not read', async () => {
  const before = cluster.engine.requests.length;
  const most = await growth(async () => {
    const socket = await dial(cluster.gateway.url);
    socket.on('error', () => undefined);
    socket.pause();
    const body = { model: MODEL, input: 'x', voice: 'x', stand_in: { bytes: BODY_BYTES } };
    socket.write(postBytes(`${cluster.base}/audio/speech`, { authorization: `Bearer ${cluster.key}` }, body));
    await eventually('the engine answers', 10_000, () =>
      cluster.engine.requests[before]?.headAt === undefined ? undefined : true,
    );
    await new Promise((resolve) => setTimeout(resolve, REST_MS * 2));
    const stalled = cluster.engine.requests[before];
    expect(stalled?.finishedAt, 'the engine could not send it all').toBeUndefined();
    expect(stalled?.abortedAt, 'a slow reader is not cut off').toBeUndefined();
    socket.destroy();
    await cluster.engine.when(
      (request) => request.id === stalled?.id && request.abortedAt !== undefined,
      5_000,
      'the abort',
    );
  });
  expectBounded(most);
});

it('200 MiB from a client to an engine that does not read', async () => {
  cluster.engine.control({ readBody: false }, 1);
  let sent = 0;
  const most = await growth(async () => {
    const upload = httpRequest(`${cluster.base}/audio/transcriptions`, {
      method: 'POST',
      agent: false,
      headers: {
        authorization: `Bearer ${cluster.key}`,
        'content-type': 'application/octet-stream',
        'x-otela-model': MODEL,
        'content-length': BODY_BYTES,
      },
    });
    upload.on('error', () => undefined);
    const source = patternStream(BODY_BYTES);
    source.on('data', (piece: Buffer) => {
      sent += piece.length;
    });
    source.pipe(upload);
    await rest(() => sent);
    expect(sent, 'the client was held back').toBeLessThan(BODY_BYTES / 2);
    source.destroy();
    upload.destroy();
  });
  expectBounded(most);
});

// Data that passed before they stalled is garbage that a heap may keep once; a second time it must not grow by as much
// again.
it.each([
  { readers: 4, bound: GROWTH_MIB, time: 'once' },
  { readers: 50, bound: 256, time: 'once' },
  { readers: 50, bound: 110, time: 'again' },
])('$readers stalled readers leave the others served, and nothing grows ($time)', async ({ readers, bound }) => {
  const body = { model: MODEL, input: 'x', voice: 'x', stand_in: { bytes: 20 * 1024 * 1024 } };
  const before = cluster.engine.requests.at(-1)?.id ?? 0;
  const sockets = await Promise.all(Array.from({ length: readers }, () => dial(cluster.gateway.url)));
  const most = await growth(async () => {
    for (const socket of sockets) {
      socket.on('error', () => undefined);
      socket.pause();
      socket.write(postBytes(`${cluster.base}/audio/speech`, { authorization: `Bearer ${cluster.key}` }, body));
    }
    const mine = () => cluster.engine.requests.filter((request) => request.id > before && request.headAt !== undefined);
    await eventually('all are under way', 10_000, () => (mine().length === readers ? true : undefined));
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
    try {
      const response = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 300 }, { stream: true }), {
        signal: AbortSignal.timeout(60_000),
      });
      expect(await response.text()).toContain('[DONE]');
    } finally {
      for (const socket of sockets) socket.destroy();
    }
    await eventually('all are over', 10_000, () =>
      mine().every((request) => request.abortedAt ?? request.finishedAt) ? true : undefined,
    );
  });
  expectBounded(most, bound);
});

it('answers that were handed on are not kept: thousands of them on one socket leave the agent as it was', async () => {
  const bytes = 32 * 1024;
  const ask = async () => {
    const response = await cluster.ask('/v1/audio/speech', {
      model: MODEL,
      input: 'x',
      voice: 'x',
      stand_in: { bytes },
    });
    expect((await response.arrayBuffer()).byteLength).toBe(bytes);
  };
  const round = async () => {
    for (let n = 0; n < 125; n++) await Promise.all(Array.from({ length: 32 }, ask));
  };
  await round(); // the heap's size under load is not growth
  const most = await growth(round);
  expectBounded(most, 80); // 4,000 responses are 125 MiB
});
