/**
 * The connection that a stream leaves on: what its client reads before, of and behind the stream, what workerd reads meanwhile, and
 * what happens when workerd closes it below.
 */
import { readFile } from 'node:fs/promises';
import { afterEach, expect, test } from 'vitest';
import { OUTLET_WINDOW_BYTES } from '../../../gateway/standalone/node/outflow.ts';
import { MARKED_MAX_BYTES } from '../../../gateway/standalone/node/outlet-marker.ts';
import { NO_OPENSSL, OPENSSL, selfSigned } from '../../support/certificate.ts';
import { endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { GET, HEAD, House, plain, STREAM, TOKEN } from './outlet-house.ts';

afterEach(endAll);

test('a stream reaches its client as chunks, and the connection stays for the next request', async () => {
  const house = await new House().open();
  const { object, client, upstream } = await house.taken('data: 1\n\n');
  expect(await object.frame('credit')).toMatchObject({ consumed: 0, window: OUTLET_WINDOW_BYTES });
  object.data(0, 'data: 2\n\n');
  object.data(9, '');
  object.data(9, 'x'.repeat(300));
  object.end(309);
  const stream = `${HEAD}9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n12c\r\n${'x'.repeat(300)}\r\n0\r\n\r\n`;
  await client.expectText(stream);
  client.socket.write(GET);
  await upstream.expectText(GET + GET);
  upstream.socket.write(plain('next'));
  await client.expectText(stream + plain('next'));
  expect(house.upstreams).toHaveLength(1);
  // Small answers cause no credit, and a finished one no word when its client leaves.
  client.socket.destroy();
  await eventually('upstream closed', 5_000, () => (upstream.closed ? true : undefined));
  expect(object.frames).toHaveLength(1);
});

test('an answer without a first part begins with its head', async () => {
  const house = await new House().open();
  const { object, client } = await house.taken();
  await client.expectText(HEAD);
  object.end(0);
  await client.expectText(`${HEAD}0\r\n\r\n`);
});

test('head and body may come in two reads, split anywhere behind the secret', async () => {
  const house = await new House().open();
  const object = await house.object();
  // Numbers of one width, so that every answer is as long as the next.
  const numbered = (at: number) => house.marked('first', 100_000 + at);
  const split = async (at: number) => {
    const stream = 100_000 + at;
    const { client, upstream } = await house.exchange(`GET /${stream} HTTP/1.1\r\nhost: h\r\n\r\n`);
    object.announce(stream);
    // The first read is over when the client has what is before the answer.
    upstream.socket.write(plain('before') + numbered(at).slice(0, at));
    await client.expectText(plain('before'));
    upstream.socket.write(numbered(at).slice(at) + plain('behind'));
    await object.frame('credit', stream);
    object.data(0, 'second', stream);
    object.end(6, stream);
    await client.expectText(`${plain('before')}${HEAD}5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n${plain('behind')}`);
    client.socket.destroy();
  };
  const from = numbered(0).indexOf(house.outlets.secret) + house.outlets.secret.length;
  const offsets = Array.from({ length: numbered(0).length - from }, (_, i) => from + i);
  expect(offsets.length).toBeGreaterThan(100);
  await Promise.all(offsets.map(split));
});

test('an answer that workerd does not finish, or that is too large, resets its client', async () => {
  const house = await new House().open();
  const cut = await house.exchange();
  cut.upstream.socket.end(house.marked('first').slice(0, -5));
  await cut.client.expectReset();
  const large = await house.exchange();
  large.upstream.socket.write(house.marked('x'.repeat(MARKED_MAX_BYTES)));
  await large.client.expectReset();
});

test('workerd closes its idle connection below a stream: the client’s ends behind the stream', async () => {
  const house = await new House().open();
  const { object, client, upstream } = await house.taken('first');
  upstream.socket.end();
  object.data(0, 'second');
  object.end(6);
  await client.expectText(`${HEAD}5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n`);
  await eventually('the end', 5_000, () => (client.ended ? true : undefined));
  expect(client.error).toBeUndefined();
});

test('a connection that its head calls closing ends behind the stream', async () => {
  const house = await new House().open();
  const object = await house.object();
  const { client, upstream } = await house.exchange();
  object.announce();
  upstream.socket.end(house.marked('first', STREAM, 'Connection: close\r\n'));
  await object.frame('credit');
  object.data(0, 'second');
  object.end(6);
  await eventually('the end', 5_000, () => (client.ended ? true : undefined));
  expect(client.text.endsWith('\r\n5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n')).toBe(true);
});

test('a request that began before workerd closed below a stream is not said again from its middle', async () => {
  const house = await new House().open();
  const { object, client, upstream } = await house.exchange(GET + GET.slice(0, 10)).then(async (exchange) => {
    const object = await house.object();
    object.announce();
    exchange.upstream.socket.write(house.marked('first'));
    await object.frame('credit');
    return { ...exchange, object };
  });
  upstream.socket.end();
  client.socket.write(GET.slice(10));
  object.end(0);
  await eventually('the end', 5_000, () => (client.ended ? true : undefined));
  expect(client.text).toBe(`${HEAD}5\r\nfirst\r\n0\r\n\r\n`);
  expect(house.upstreams, 'no connection is opened for the rest').toHaveLength(1);
});

test('a client of HTTP/1.0 gets the stream as it is, and the end of its connection as its end', async () => {
  const house = await new House().open();
  const object = await house.object();
  const { client, upstream } = await house.exchange();
  object.announce();
  upstream.socket.write(house.marked('first').replace('HTTP/1.1', 'HTTP/1.0'));
  await object.frame('credit');
  object.data(0, 'second');
  object.end(6);
  await eventually('the end', 5_000, () => (client.ended ? true : undefined));
  expect(client.text).toBe('HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\nfirstsecond');
});

test('no client gets the secret, wherever a read ends: the stream is whole, or the client is reset', async () => {
  const house = await new House().open();
  const object = await house.object();
  const before = plain('one');
  const marked = before + house.marked('first');
  const secretAt = marked.indexOf(house.outlets.secret);
  let whole = 0;
  for (let cut = before.length; cut <= secretAt + 34; cut += cut < secretAt - 2 ? 17 : 1) {
    const stream = 10_000 + cut;
    const { client, upstream } = await house.exchange(GET + GET);
    object.announce(stream);
    const text = before + house.marked('first', stream);
    upstream.socket.write(text.slice(0, cut));
    await client.expectAtLeast(before);
    upstream.socket.write(text.slice(cut));
    const taken = () => object.frames.some((frame) => frame.type === 'credit' && frame.stream === stream);
    await eventually('it is taken or broken', 5_000, () => (taken() || client.closed ? true : undefined));
    if (taken()) {
      whole++;
      object.end(0, stream);
      await eventually('its end', 5_000, () => (client.text.endsWith('0\r\n\r\n') ? true : undefined));
    }
    for (let length = 8; length <= 32; length++) {
      expect(client.text).not.toContain(house.outlets.secret.slice(0, length));
    }
    client.socket.destroy();
  }
  expect(whole).toBeGreaterThan(20);
}, 60_000);

test('a body that reads like a change of protocol changes nothing: the stream behind it is whole, and without the secret', async () => {
  const house = await new House().open();
  const object = await house.object();
  const { client, upstream } = await house.exchange(GET + GET);
  const switching = 'HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n';
  const quoting = plain(switching);
  // The body is a read of its own: the client has what is before it.
  upstream.socket.write(quoting.slice(0, -switching.length));
  await client.expectText(quoting.slice(0, -switching.length));
  upstream.socket.write(switching);
  await client.expectText(quoting);
  object.announce();
  upstream.socket.write(house.marked('first'));
  await client.expectText(`${quoting}${HEAD}5\r\nfirst\r\n`);
  object.data(0, 'second');
  object.end(6);
  await client.expectText(`${quoting}${HEAD}5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n`);
});

test('behind a change of protocol bytes pass as they are, but never the secret: its client is reset', async () => {
  const house = await new House().open();
  const { client, upstream } = await house.exchange();
  const switching = 'HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n';
  const frames = `\x82\x05\0\xff\r\n\r\nHTTP/1.1 200 OK\r\nx-otela-outlet: ${'0'.repeat(32)} ${house.outlets.secret.slice(0, 20)}x`;
  upstream.socket.write(Buffer.from(switching + frames, 'latin1'));
  await client.expectText(switching + frames);
  upstream.socket.write(`HTTP/1.1 ${house.outlets.secret}\r\n\r\n`);
  await client.expectReset();
  expect(client.text).toBe(switching + frames);
});

test('a marked head that has the secret in another header too resets its client', async () => {
  const house = await new House().open();
  const object = await house.object();
  const { client, upstream } = await house.exchange();
  object.announce();
  upstream.socket.write(house.marked('first', STREAM, `x-other: ${house.outlets.secret}\r\n`));
  await client.expectReset();
  expect(client.text).toBe('');
});

test('answers to pipelined requests come behind the stream, in order, streams too', async () => {
  const house = await new House().open();
  const object = await house.object();
  const { client, upstream } = await house.exchange(GET + GET + GET);
  object.announce(1);
  object.announce(2);
  upstream.socket.write(house.marked('one', 1) + plain('two') + house.marked('three', 2));
  await object.frame('credit', 1);
  client.socket.write(GET);
  await upstream.expectText(GET.repeat(4));
  upstream.socket.write(plain('four'));
  object.data(0, 'more', 1);
  await client.expectText(`${HEAD}3\r\none\r\n4\r\nmore\r\n`);
  object.end(4, 1);
  await object.frame('credit', 2);
  object.end(0, 2);
  const streams = [`${HEAD}3\r\none\r\n4\r\nmore\r\n0\r\n\r\n`, `${HEAD}5\r\nthree\r\n0\r\n\r\n`];
  await client.expectText(`${streams[0]}${plain('two')}${streams[1]}${plain('four')}`);
});

test('ending waits for a stream that moves', async () => {
  const house = await new House().open();
  const { object, client } = await house.taken();
  const drained = house.drain(10_000);
  const tokens = await object.tokensFor(1_500);
  expect(client.closed).toBe(false);
  object.end(tokens * TOKEN.length);
  await drained;
  await eventually('closed', 5_000, () => (client.closed ? true : undefined));
  expect(client.text.endsWith('5\r\ntoken\r\n0\r\n\r\n')).toBe(true);
});

test('clients with TLS get the same', async ({ skip }) => {
  skip(!OPENSSL, NO_OPENSSL);
  const { cert, key } = selfSigned(await temporaryDirectory(), 'outlet');
  const house = await new House().open({ cert: await readFile(cert), key: await readFile(key) });
  const object = await house.object();
  const { client, upstream } = await house.exchange(GET, true);
  object.announce();
  upstream.socket.write(house.marked('first'));
  await object.frame('credit');
  for (let i = 0; i < 2; i++) object.data(i * 65_536, Buffer.alloc(65_536, 'x'));
  await eventually('credit', 5_000, () =>
    object.frames.some((frame) => frame.type === 'credit' && frame.consumed >= OUTLET_WINDOW_BYTES / 4)
      ? true
      : undefined,
  );
  object.end(OUTLET_WINDOW_BYTES);
  const chunk = `10000\r\n${'x'.repeat(65_536)}\r\n`;
  const stream = `${HEAD}5\r\nfirst\r\n${chunk.repeat(2)}0\r\n\r\n`;
  await client.expectText(stream);
  client.socket.write(GET);
  await upstream.expectText(GET + GET);
  upstream.socket.write(plain('next'));
  await client.expectText(stream + plain('next'));
});
