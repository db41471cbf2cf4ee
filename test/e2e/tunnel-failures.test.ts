/** Nodes or engines that fail: which node is tried next, and how the attempts are counted. */
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { promise } from '../support/patience.ts';
import { endAll, eventually } from '../support/processes.ts';
import { chatBody, envelopeOf } from '../support/test-cluster.ts';
import { HandAgent } from '../support/tunnel/hand-agent.ts';
import { type Bench, openTunnelBench, type TunnelBench } from '../support/tunnel/tunnel-bench.ts';

const MIB = 1024 * 1024;

let shop: TunnelBench;
beforeAll(async () => {
  shop = await openTunnelBench();
});
afterAll(endAll);

let model: string;
let count = 0;
let benches: Bench[];
beforeEach(() => {
  model = `stand-in/${++count}`;
  benches = [];
});
afterEach(async () => {
  await Promise.all(benches.map((bench) => bench.close()));
});

async function addNode(): Promise<Bench> {
  const bench = await shop.addNode({ models: [model] });
  benches.push(bench);
  return bench;
}

const unary = (standIn: object) => chatBody({ id: 'same', ...standIn }, { model });
const chat = (body: object) => shop.ask('/v1/chat/completions', body);
const calls = () => benches.map((bench) => bench.engine.requests.length);

describe('another node is asked', () => {
  const faults: Record<string, object> = {
    'when an engine says 503': { status: 503 },
    'when an engine resets before its head': { fault: 'reset-before-head' },
    'when an engine speaks no HTTP': { fault: 'garbage' },
    'when a unary answer is cut short': { fault: 'close' },
    'when a unary answer is reset': { fault: 'reset' },
  };
  it.each(Object.entries(faults))('%s; each node once, the client sees the good answer', async (_what, behaviour) => {
    const [bad, good] = [await addNode(), await addNode()];
    bad.engine.control(behaviour);
    // The choice is random, so the test sends requests until the bad node was chosen first.
    for (let asked = 0; bad.engine.requests.length === 0; asked++) {
      expect(asked).toBeLessThan(40);
      const before = calls();
      const response = await chat(unary({ tokens: 7 }));
      expect(response.status).toBe(200);
      expect(await response.json()).toMatchObject({ usage: { completion_tokens: 7 } });
      const wasBad = bad.engine.requests.length > (before[0] ?? 0);
      expect(response.headers.get('x-otela-attempts')).toBe(wasBad ? '2' : '1');
      expect(response.headers.get('x-otela-node')).toBe(good.session);
    }
    // To the agent, an engine that resets immediately looks like a stale connection, so it sends the request once more.
    expect(bad.engine.requests.length).toBeLessThanOrEqual(2);
  });

  it('when an engine does not listen any more', async () => {
    const [bad] = [await addNode(), await addNode()];
    await bad.engine.close();
    for (let n = 0; n < 12; n++) {
      const response = await chat(unary({ tokens: 3 }));
      expect(response.status, await response.text()).toBe(200);
    }
  });

  it('when a node does not acknowledge, and the silent one is trusted again once it speaks', async () => {
    const [mute, other] = [await addNode(), await addNode()];
    mute.path.hold();
    const startedAt = Date.now();
    const answers = await Promise.all(Array.from({ length: 8 }, () => chat(unary({ tokens: 3 }))));
    for (const response of answers) expect(response.status).toBe(200);
    expect(Date.now() - startedAt).toBeLessThan(promise(5_000)); // 10 s if there is no other node to try
    expect(other.engine.requests).toHaveLength(8);
    expect(await shop.suspected()).toContain(mute.session);
    mute.path.release();
    await eventually('the mute one is trusted', 5_000, async () =>
      (await shop.suspected()).includes(mute.session) ? undefined : true,
    );
  });

  it('when a node was silent it is trusted again once it speaks, also where a stranger knocked with its ticket meanwhile', async () => {
    const [mute] = [await addNode(), await addNode()];
    mute.path.hold();
    for (const response of await Promise.all(Array.from({ length: 8 }, () => chat(unary({ tokens: 3 })))))
      expect(response.status).toBe(200);
    expect(await shop.suspected()).toContain(mute.session);
    const { ticket, session } = mute;
    const stranger = new HandAgent(shop, { ...shop.issuer.identity(), ticket, session });
    await stranger.when('challenge');
    stranger.socket.close();
    await stranger.closed;
    mute.path.release();
    await eventually('the mute one is trusted', 5_000, async () =>
      (await shop.suspected()).includes(session) ? undefined : true,
    );
  });

  it('when an engine keeps saying 503: it is left alone after a few, and asked again once it is well', async () => {
    const [bad, good] = [await addNode(), await addNode()];
    bad.engine.control({ status: 503 });
    const startedAt = Date.now();
    for (let n = 0; n < 40; n++) {
      const response = await chat(unary({ tokens: 3 }));
      expect(response.status, await response.text()).toBe(200);
    }
    const asked = bad.engine.requests.length;
    expect(asked).toBeGreaterThanOrEqual(1);
    // The node is tried once a second until five failures open its circuit breaker, and then probed every five seconds.
    expect(asked).toBeLessThanOrEqual(6 + Math.ceil((Date.now() - startedAt) / 5_000));
    expect(good.engine.requests).toHaveLength(40);
    bad.engine.control({});
    await eventually('it is asked again', 10_000, async () => {
      const response = await chat(unary({ tokens: 3 }));
      expect(response.status, await response.text()).toBe(200);
      return bad.engine.requests.length > asked + 1 ? true : undefined;
    });
  });

  it('never after an engine’s 4xx, but for the 404 of one that lost its model', async () => {
    await addNode();
    await addNode();
    for (const status of [400, 401, 422]) {
      const response = await chat(unary({ status }));
      expect(response.status).toBe(status);
      expect(response.headers.get('x-otela-attempts')).toBe('1');
    }
    expect(calls().reduce((sum, n) => sum + n, 0)).toBe(3);
  });
});

describe('what was given up', () => {
  it('because its node did not acknowledge is cancelled there as soon as it can be reached', async () => {
    const [mute, other] = [await addNode(), await addNode()];
    mute.path.hold();
    const answers = await Promise.all(Array.from({ length: 8 }, () => chat(unary({ tokens: 3, delayMs: 1_000 }))));
    for (const response of answers) expect(response.status).toBe(200);
    expect(other.engine.requests).toHaveLength(8);
    mute.path.release();
    await eventually('it is trusted again', 5_000, async () =>
      (await shop.suspected()).includes(mute.session) ? undefined : true,
    );
    await eventually('nothing runs there', 3_000, () => (mute.engine.running() === 0 ? true : undefined));
    expect(mute.engine.requests.filter(({ finishedAt }) => finishedAt !== undefined)).toEqual([]);
    expect(await doubles()).toBe(0);
  });

  it('and is completed all the same is counted', async () => {
    const other = await addNode();
    const agent = await new HandAgent(shop).join([model]);
    await shop.refreshed();
    for (let asked = 0; agent.all('open').length === 0; asked++) {
      expect(asked).toBeLessThan(40);
      expect((await chat(unary({ tokens: 3 }))).status).toBe(200);
    }
    expect(other.engine.requests.length).toBeGreaterThan(0);
    await agent.when('reset'); // it was given up, and answers nevertheless
    const open = await agent.when('open');
    agent.answer(open.stream);
    await eventually('the second completion is counted', 3_000, async () =>
      (await doubles()) === 1 ? true : undefined,
    );
    agent.answer(open.stream);
    expect(await doubles()).toBe(1);
    agent.socket.close();
  });

  async function doubles(): Promise<number> {
    const ready: unknown = await (await fetch(new URL('/readyz', shop.url))).json();
    return z.object({ registry: z.object({ double_completions: z.number() }) }).parse(ready).registry
      .double_completions;
  }
});

it('a single node whose path is gone for four seconds costs no error', async () => {
  const bench = await addNode();
  bench.path.down();
  const asked = chat(unary({ tokens: 3 }));
  await new Promise((resolve) => setTimeout(resolve, 4_000)); // the length of the outage
  bench.path.mend();
  const response = await asked;
  expect(response.status, await response.text()).toBe(200);
});

it('a single node that was suspected for a pause is asked again, however long the pause is over', async () => {
  const bench = await addNode();
  bench.path.hold();
  const response = await chat(unary({ tokens: 3 }));
  expect(response.status).toBe(503);
  expect((await envelopeOf(response)).code).toBe('no_capacity');
  bench.path.release();
  await eventually('it serves again', 5_000, async () => {
    const again = await chat(unary({ tokens: 3 }));
    return again.status === 200 ? true : undefined;
  });
});

it('an answer that came whole is not taken back when its node leaves before it was read', async () => {
  const bench = await addNode();
  const size = 12 * MIB;
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const headers = { authorization: `Bearer ${shop.key}`, 'content-type': 'application/json' };
    const request = httpRequest(new URL('/v1/audio/speech', shop.url), { method: 'POST', headers });
    request.once('response', resolve).once('error', reject);
    request.end(JSON.stringify({ model, input: 'x', voice: 'x', stand_in: { bytes: size } }));
  });
  let read = 0;
  response.on('data', (piece: Buffer) => {
    read += piece.length;
    // The client reads slowly, so that the end of the response waits in the gateway.
    if (bench.engine.requests[0]?.finishedAt === undefined) return;
    response.pause();
  });
  await bench.engine.when(({ finishedAt }) => finishedAt !== undefined, 20_000);
  expect(read).toBeLessThan(size);
  await bench.tunnel.drain();
  await bench.tunnel.close();
  await new Promise((resolve) => setTimeout(resolve, 11_000)); // longer than any wait for a node to return
  response.removeAllListeners('data').on('data', (piece: Buffer) => {
    read += piece.length;
  });
  response.resume();
  await eventually('all is read', 10_000, () => (read === size && response.complete ? true : undefined));
});

it('none of it was an error inside the gateway', () => {
  expect(shop.logs()).toEqual([]);
});
