/** What a client could do to a node's tunnel, and to the other clients on it. */
import { connect } from 'node:net';
import { expect, it } from 'vitest';
import { eventually } from '../support/processes.ts';
import { postBytes, raw } from '../support/raw.ts';
import { chatBody } from '../support/test-cluster.ts';
import { OwnNode } from '../support/tunnel/own-node.ts';

const MIB = 1024 * 1024;

const own = new OwnNode();

const unary = (standIn: object, more: object = {}) => chatBody(standIn, { model: own.model, ...more });
const chat = (body: object, init: RequestInit = {}) => own.shop.ask('/v1/chat/completions', body, init);

const HEADERS: Record<string, Buffer> = {
  'of letters that are three bytes each': Buffer.from('€'.repeat(4_000)),
  'of bytes that are no UTF-8': Buffer.alloc(4_000, 0xff),
  'of Latin letters': Buffer.from('é'.repeat(200), 'latin1'),
  'longer than is passed on': Buffer.from('x'.repeat(30_000)),
};
it.each(Object.entries(HEADERS))(
  'a header %s costs nobody the tunnel',
  async (_what, value) => {
    const body = JSON.stringify(unary({ tokens: 3 }));
    for (const name of ['tracestate', 'anthropic-beta', 'x-request-id', 'accept']) {
      const socket = connect({ host: own.shop.url.hostname, port: Number(own.shop.url.port) });
      let answer = '';
      socket
        .on('error', () => undefined)
        .on('data', (chunk: Buffer) => {
          answer += chunk.toString('latin1');
        });
      const head =
        `POST /v1/chat/completions HTTP/1.1\r\nhost: ${own.shop.url.host}\r\nauthorization: Bearer ${own.shop.key}\r\n` +
        `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n${name}: `;
      socket.write(Buffer.concat([Buffer.from(head), value, Buffer.from(`\r\n\r\n${body}`)]));
      await eventually('an answer', 8_000, () => (answer.includes('\r\n\r\n') ? true : undefined));
      expect(answer.slice(0, 12)).toMatch(/^HTTP\/1\.1 (200|4\d\d)$/);
      socket.destroy();
    }
    expect((await chat(unary({ tokens: 3 }))).status).toBe(200);
    expect(own.bench.path.connections).toBe(1);
  },
  40_000,
);

it('two clients that send the same request id get each their own answer, at once and one after the other', async () => {
  const headers = { 'x-request-id': 'the-same' };
  const ask = async (tokens: number, stream: boolean) =>
    (await chat(unary({ tokens, delayMs: 200 }, { stream }), { headers })).text();
  const texts = await Promise.all([ask(3, false), ask(5, false), ask(7, true), ask(9, true)]);
  expect(texts[0]).toContain('"completion_tokens":3');
  expect(texts[1]).toContain('"completion_tokens":5');
  expect(texts[2]?.match(/"content":" ?\w/g)).toHaveLength(7);
  expect(texts[3]?.match(/"content":" ?[\w,]/g)).toHaveLength(9);
  expect(await ask(4, false)).toContain('"completion_tokens":4');
  expect(own.bench.engine.requests.map((request) => request.headers['x-request-id'])).toEqual(
    Array(5).fill('the-same'),
  );
  expect(await own.shop.settled(own.bench, 5)).toHaveLength(5);
});

it.each([1, 40])(
  '%i clients that stop reading do not hold up the others, and get their rest when they read on',
  async (n) => {
    const size = 24 * MIB;
    const stalled = await Promise.all(
      Array.from({ length: n }, () => {
        const socket = connect({ host: own.shop.url.hostname, port: Number(own.shop.url.port) });
        socket.on('error', () => undefined);
        socket.pause();
        const body = { model: own.model, input: 'x', voice: 'x', stand_in: { bytes: size } };
        socket.write(
          postBytes(new URL('/v1/audio/speech', own.shop.url).href, { authorization: `Bearer ${own.shop.key}` }, body),
        );
        return socket;
      }),
    );
    let last = -1;
    let since = Date.now();
    await eventually('the flow comes to rest', 60_000, () => {
      if (own.bench.path.toGateway !== last) {
        last = own.bench.path.toGateway;
        since = Date.now();
      }
      return Date.now() - since > 1_500 ? true : undefined;
    });
    const startedAt = Date.now();
    for (let round = 0; round < 20; round++) {
      const [text, large] = await Promise.all([
        chat(unary({ tokens: 200 }, { stream: true })).then((response) => response.text()),
        chat(unary({ tokens: 1 }, { pad: 'p'.repeat(MIB) })).then((response) => response.status),
      ]);
      expect(text).toContain('[DONE]');
      expect(large).toBe(200);
    }
    const speech = await raw(new URL('/v1/audio/speech', own.shop.url).href, {
      method: 'POST',
      headers: { authorization: `Bearer ${own.shop.key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: own.model, input: 'x', voice: 'x', stand_in: { bytes: 10 * MIB } }),
    });
    expect(speech.bytes).toBe(10 * MIB);
    console.log(
      `beside ${n} stalled readers: 20 streams, 20 uploads of 1 MiB and 10 MiB down in ${Date.now() - startedAt} ms`,
    );
    const [first] = stalled;
    let read = 0;
    first?.on('data', (chunk: Buffer) => {
      read += chunk.length;
    });
    first?.resume();
    await eventually('the first one has its answer', 20_000, () => (read >= size ? true : undefined));
    for (const socket of stalled) socket.destroy();
    expect(own.bench.path.connections).toBe(1);
  },
  120_000,
);
