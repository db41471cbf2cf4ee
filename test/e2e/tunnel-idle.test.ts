/** Tunnels that sleep and wake, and credit that must balance over thousands of requests. */

import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { eventually } from '../support/processes.ts';
import { patternSha256 } from '../support/raw.ts';
import { chatBody } from '../support/test-cluster.ts';
import { HandAgent } from '../support/tunnel/hand-agent.ts';
import { OwnNode } from '../support/tunnel/own-node.ts';

const MIB = 1024 * 1024;

const own = new OwnNode();

const unary = (standIn: object, more: object = {}) => chatBody(standIn, { model: own.model, ...more });
const chat = (body: object, init: RequestInit = {}) => own.shop.ask('/v1/chat/completions', body, init);

async function download(bytes: number): Promise<void> {
  const response = await own.shop.ask('/v1/audio/speech', {
    model: own.model,
    input: 'x',
    voice: 'x',
    stand_in: { bytes },
  });
  const body = Buffer.from(await response.arrayBuffer());
  expect(createHash('sha256').update(body).digest('hex')).toBe(patternSha256(bytes));
}

async function uploadOf(bytes: number): Promise<void> {
  const response = await chat(unary({ tokens: 1 }, { pad: 'p'.repeat(bytes) }));
  expect(response.status, await response.text()).toBe(200);
}

/**
 * Disconnects without the proxy of the tests. If that proxy does not forward the disconnect, a Worker continues to
 * write, and its object stays in use.
 */
async function leaving(body: object): Promise<void> {
  const client = new AbortController();
  const response = await own.shop.askStraight('/v1/chat/completions', body, client.signal);
  await response.body?.getReader().read();
  client.abort();
}

describe('a tunnel that was put to sleep', () => {
  it('serves the next request on the same socket, with numbers that never repeat', async () => {
    const streams = new Set<number>();
    for (let round = 1; round <= 6; round++) {
      expect((await chat(unary({ tokens: 3 }))).status).toBe(200);
      expect((await chat(unary({ tokens: 3 }, { stream: true }))).status).toBe(200);
      const stored = await own.shop.settled(own.bench, round * 2);
      for (const { stream } of stored) streams.add(stream);
      expect(streams.size).toBe(round * 2);
      await own.shop.evict(own.bench, 'hibernate');
    }
    expect(own.bench.path.connections).toBe(1);
    expect(own.bench.log).toEqual([]);
  });

  it('goes on counting credit: far more than a window passes both ways over many sleeps', async () => {
    for (let round = 0; round < 8; round++) {
      await download(1.5 * MIB);
      await uploadOf(1.5 * MIB);
      await own.shop.evict(own.bench, 'hibernate');
    }
    await download(12 * MIB);
    await uploadOf(12 * MIB);
    expect(own.bench.path.connections).toBe(1);
  });

  it('goes on where clients left in the middle, both ways', async () => {
    for (let round = 0; round < 20; round++) {
      const control = new AbortController();
      const body = round % 2 === 0 ? { bytes: 8 * MIB } : { tokens: 100_000 };
      const response = await chat(unary(body, { stream: round % 2 === 1, pad: 'p'.repeat(300_000) }), {
        signal: control.signal,
      });
      await response.body?.getReader().read();
      control.abort();
      await eventually('the engine is let go', 3_000, () => (own.bench.engine.running() === 0 ? true : undefined));
    }
    await download(12 * MIB);
    await uploadOf(12 * MIB);
    expect(own.bench.path.connections).toBe(1);
  });

  it('finds a socket that was closed with it closed, and gets the next one', async () => {
    expect((await chat(unary({ tokens: 3 }))).status).toBe(200);
    await own.shop.evict(own.bench, 'close');
    const response = await chat(unary({ tokens: 3 }));
    expect(response.status, await response.text()).toBe(200);
    expect(own.bench.path.connections).toBe(2);
    await download(6 * MIB);
  });
});

describe('after hundreds of requests that ended in every way', () => {
  it('nothing waits, nothing is open, and whole windows are free both ways', async () => {
    const kinds: (() => Promise<void>)[] = [
      async () => expect((await chat(unary({ tokens: 5 }))).status).toBe(200),
      async () => expect(await (await chat(unary({ tokens: 20 }, { stream: true }))).text()).toContain('[DONE]'),
      async () => expect((await chat(unary({ status: 400 }))).status).toBe(400),
      async () => expect((await chat(unary({ fault: 'reset-before-head' }))).status).toBe(502),
      async () => expect((await chat(unary({ fault: 'close' }))).status).toBe(502),
      async () =>
        void (await (await chat(unary({ tokens: 60, fault: 'close', afterTokens: 30 }, { stream: true }))).text()),
      () => leaving(unary({ bytes: 3 * MIB })),
      () => leaving(unary({ tokens: 50_000 }, { stream: true })),
      () => download(700_000),
      () => uploadOf(700_000),
    ];
    for (let round = 0; round < 12; round++) {
      await Promise.all([...kinds, ...kinds].map((ask) => ask()));
      if (round % 3 === 1) own.bench.path.cut();
      if (round === 6) await own.shop.crash(own.bench);
    }
    await eventually('the engine is free', 15_000, () => (own.bench.engine.running() === 0 ? true : undefined));
    // Streams that are not claimed after the last cut are given up after ten seconds.
    await eventually('the agent is free', 15_000, () => (own.bench.tunnel.inFlight === 0 ? true : undefined));
    await own.shop.rest(own.bench);
    const connections = own.bench.path.connections;
    // If credit had leaked, these transfers would stall, because together they use all the credit of both sides.
    await Promise.all([download(8 * MIB), uploadOf(8 * MIB), download(8 * MIB), uploadOf(8 * MIB)]);
    expect(own.bench.path.connections).toBe(connections);
    await own.bench.tunnel.drain();
  });

  it('four hundred in a row and sixty-four at a time are all answered and all counted', async () => {
    for (let n = 0; n < 400; n++) {
      const response = await chat(unary({ tokens: 2 }));
      expect(response.status).toBe(200);
      await response.arrayBuffer();
    }
    for (let round = 0; round < 5; round++) {
      const bodies = await Promise.all(
        Array.from({ length: 64 }, async (_, n) => (await chat(unary({ tokens: 2 }, { stream: n % 2 === 0 }))).text()),
      );
      expect(bodies).toHaveLength(64);
    }
    const stored = await own.shop.settled(own.bench, 720);
    expect(stored).toHaveLength(720);
    expect(new Set(stored.map(({ requestId, attempt }) => `${requestId}/${attempt}`)).size).toBe(720);
    expect(stored.every((record) => record.complete && !record.estimated && record.completion === 2)).toBe(true);
    await own.shop.rest(own.bench);
    expect(own.bench.path.connections).toBe(1);
    await own.bench.tunnel.drain();
  });
});

describe('nodes that share the gateway’s memory', () => {
  it('serve on when others come and go: a share that grows or shrinks loses no credit', async () => {
    const join = () =>
      Promise.all(Array.from({ length: 40 }, () => new HandAgent(own.shop).join([`other/${own.model}`])));
    for (let round = 0; round < 2; round++) {
      const others = await join();
      await download(10 * MIB);
      await own.shop.rest(own.bench);
      for (const other of others) other.socket.close(1000);
      await Promise.all(others.map((other) => other.closed));
      await download(10 * MIB);
      await uploadOf(10 * MIB);
    }
    expect(own.bench.path.connections).toBe(1);
  });

  it('have whole windows however often they slept', async () => {
    for (let round = 0; round < 40; round++) {
      expect((await chat(unary({ tokens: 1 }))).status).toBe(200);
      await own.shop.rest(own.bench);
    }
    const other = await new HandAgent(own.shop).join([`other/${own.model}`]);
    expect((await other.when('welcome')).window).toBe(4 * MIB);
    other.socket.close(1000);
    await other.closed;
  });

  it('and in the middle of an answer', async () => {
    const others = await Promise.all(
      Array.from({ length: 40 }, () => new HandAgent(own.shop).join([`other/${own.model}`])),
    );
    await download(10 * MIB);
    const downloads = [download(40 * MIB), download(40 * MIB)];
    for (const other of others) other.socket.close(1000);
    await Promise.all(downloads);
    await download(10 * MIB);
    expect(own.bench.path.connections).toBe(1);
  });
});
