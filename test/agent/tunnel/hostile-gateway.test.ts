/** An agent must survive everything that arrives on its socket, because the engine's process is its child. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { writeFrame } from '../../../shared/wire/frame-codec.ts';
import { FrameWriter } from '../../../shared/wire/frame-writer.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';
import { chatBody } from '../../support/test-cluster.ts';
import { openAgentSide, startAgentSide } from '../../support/tunnel/agent-side.ts';
import { type HandSocket, openingFrame } from '../../support/tunnel/hand-gateway.ts';

afterEach(endAll);

const body = (standIn: object = {}, more: object = {}) =>
  new TextEncoder().encode(JSON.stringify(chatBody(standIn, more)));

/** The frames that open an attempt with its whole body. */
function request(stream: number, standIn: object = {}, more: object = {}): Frame[] {
  const bytes = body(standIn, more);
  return [
    openingFrame(stream, { bodyLength: bytes.length }),
    { type: 'data', stream, offset: 0, bytes },
    { type: 'end', stream, offset: bytes.length },
  ];
}

function bytesOf(...frames: Frame[]): Uint8Array {
  const out = new FrameWriter();
  let previous: number | undefined;
  for (const frame of frames) previous = writeFrame(out, frame, previous);
  return out.take();
}

async function answers(socket: HandSocket, stream: number): Promise<void> {
  socket.byHand = true;
  socket.put(...request(stream));
  expect((await socket.when('head', stream)).status).toBe(200);
  await socket.when('end', stream);
}

describe('a gateway that breaks the protocol', () => {
  const wrongs: Record<string, Uint8Array> = {
    'a frame that ends too early': bytesOf(openingFrame(1)).subarray(0, 9),
    'a length that points past the message': Uint8Array.of(3, 1, 0, 0xff, 0x7f),
    'an unknown frame': Uint8Array.of(0x7e),
    'a frame only agents send': bytesOf({ type: 'head', stream: 1, status: 200, engineTenths: 0, headers: [] }),
    'data beyond a gap': bytesOf(openingFrame(1), { type: 'data', stream: 1, offset: 5, bytes: new Uint8Array(3) }),
    'an end at the wrong place': bytesOf(openingFrame(1), { type: 'end', stream: 1, offset: 7 }),
    'credit for bytes never sent': bytesOf({ type: 'credit', stream: 0, consumed: 1_000_000, window: 5 }),
    'edits that overlap': bytesOf(
      openingFrame(1, {
        edits: [
          { at: 5, remove: 5, insert: new Uint8Array(0) },
          { at: 6, remove: 1, insert: new Uint8Array(0) },
        ],
      }),
    ),
    'an edit beyond the body': bytesOf(
      openingFrame(1, { bodyLength: 3, edits: [{ at: 50, remove: 1, insert: new Uint8Array(0) }] }),
      { type: 'data', stream: 1, offset: 0, bytes: new Uint8Array(3) },
      { type: 'end', stream: 1, offset: 3 },
    ),
  };

  it.each(Object.entries(wrongs))('%s: the agent closes with 4002, says why and comes back', async (_what, bytes) => {
    const { gateway, socket, log } = await openAgentSide();
    socket.socket.send(bytes);
    const { code, reason } = await socket.closed;
    expect(code).toBe(4002);
    expect(reason).not.toBe('');
    const next = await gateway.socket(1);
    await next.greet();
    expect(log.join('\n')).toContain('4002');
    await answers(next, 99);
  });

  it('a request that came in a message which broke behind it is asked when it is claimed', async () => {
    const { gateway, socket } = await openAgentSide();
    const overlapping = openingFrame(2, {
      edits: [
        { at: 5, remove: 5, insert: new Uint8Array(0) },
        { at: 6, remove: 1, insert: new Uint8Array(0) },
      ],
    });
    socket.socket.send(bytesOf(...request(1), overlapping));
    expect((await socket.closed).code).toBe(4002);
    const next = await gateway.socket(1);
    await next.greet();
    next.put(openingFrame(9, { requestId: 'request-1', resume: true, bodyLength: body().length }));
    expect((await next.when('head', 9)).status).toBe(200);
    await next.when('end', 9);
  });

  it('a message of more than a mebibyte closes the socket; the agent comes back', async () => {
    const { gateway, socket } = await openAgentSide();
    socket.socket.send(new Uint8Array(1024 * 1024 + 1));
    expect((await socket.closed).code).toBe(1009);
    const next = await gateway.socket(1);
    await next.greet();
    await answers(next, 1);
  });

  it('text, unknown streams and unknown settled numbers disturb no request', async () => {
    const { gateway, socket } = await openAgentSide();
    socket.socket.send('{"hello":1}');
    socket.put(
      { type: 'data', stream: 77, offset: 1234, bytes: new Uint8Array(100) },
      { type: 'end', stream: 78, offset: 5 },
      { type: 'reset', stream: 79, code: 'cancelled', message: '' },
      { type: 'credit', stream: 80, consumed: 5, window: 5 },
      { type: 'settled', streams: Array.from({ length: 60_000 }, (_, n) => n) },
      { type: 'recorded', sequence: 12345 },
    );
    await answers(socket, 1);
    expect(gateway.connections).toBe(1);
  });

  it('that says nothing after the upgrade is left for another try', async () => {
    const { gateway, tunnel } = await startAgentSide();
    const mute = await gateway.socket(0);
    const { code } = await mute.closed;
    expect([1006, 1000, 4002, 1005]).toContain(code);
    expect(tunnel.connected).toBe(false);
    const next = await gateway.socket(1);
    await next.greet();
    expect(tunnel.connected).toBe(true);
  });

  it('that answers the upgrade with half of an error body does not end the agent', async () => {
    const { gateway, tunnel, log } = await startAgentSide();
    const first = await gateway.socket(0);
    await first.greet();
    gateway.answerUpgrades('HTTP/1.1 503 Service Unavailable\r\ncontent-length: 500\r\n\r\n{"error":', 'reset');
    first.socket.close(4003, 'go');
    const before = gateway.upgrades;
    await eventually('three more tries', 15_000, () => (gateway.upgrades >= before + 3 ? true : undefined));
    gateway.takeUpgrades();
    const next = await gateway.socket(1, 10_000);
    await next.greet();
    expect(tunnel.connected).toBe(true);
    expect(gateway.connections).toBe(2);
    expect(log.join('\n')).toContain('503');
  });
});

/** An engine that sends these bytes to every client. */
async function rawEngine(answer: string): Promise<string> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined).once('data', () => socket.end(answer));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(() => void server.close());
  const address = server.address();
  return `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
}

describe('a gateway that will not have this agent', () => {
  it.each([
    [4001, 409, 'another agent uses this session'],
    [4004, 403, 'no'],
  ])('says so with close code %i: the agent stops and tells why', async (code, status, says) => {
    const { gateway, socket, refusals, tunnel } = await openAgentSide();
    socket.socket.close(code, 'no');
    await eventually('the refusal', 3_000, () => refusals[0]);
    expect(refusals).toEqual([{ status, message: expect.stringContaining(says) }]);
    await new Promise((resolve) => setTimeout(resolve, 700)); // longer than a reconnect would take
    expect(gateway.upgrades).toBe(1);
    expect(tunnel.connected).toBe(false);
  });

  it.each([400, 401, 403, 426])('says so with status %i: the agent stops and tells why', async (status) => {
    const { gateway, socket, refusals } = await openAgentSide();
    const body = JSON.stringify({ error: { message: 'not you', type: 'x', param: null, code: 'y' } });
    gateway.answerUpgrades(`HTTP/1.1 ${status} No\r\ncontent-length: ${body.length}\r\n\r\n${body}`, 'end');
    socket.socket.close(4003, 'go');
    await eventually('the refusal', 5_000, () => refusals[0]);
    expect(refusals).toEqual([{ status, message: 'not you' }]);
    const { upgrades } = gateway;
    await new Promise((resolve) => setTimeout(resolve, 700));
    expect(gateway.upgrades).toBe(upgrades);
  });
});

describe('an engine with odd answers', () => {
  const odd: Record<string, string> = {
    'a status above 599': 'HTTP/1.1 777 Odd\r\ncontent-length: 2\r\n\r\n{}',
    'no HTTP at all': 'SSH-2.0-OpenSSH_9.2\r\n',
    'a head that breaks off': 'HTTP/1.1 200 OK\r\ncontent-le',
  };
  it.each(Object.entries(odd))('%s costs its own request alone', async (_what, answer) => {
    const origin = await rawEngine(answer);
    const { gateway, socket } = await openAgentSide({ engine: () => ({ origin, pathPrefix: '' }) });
    socket.byHand = true;
    socket.put(...request(1));
    expect((await socket.when('reset', 1)).code).toBe('engine_closed');
    expect(socket.all('head')).toEqual([]);
    expect(gateway.connections).toBe(1);
  });

  it('headers of any number and length reach the gateway as frames that it can read', async () => {
    const headers = [
      `x-${'n'.repeat(200)}: 1`,
      `x-long: ${'v'.repeat(6000)}`,
      ...Array.from({ length: 60 }, (_, n) => `x-${n}: ${n}`),
      'content-type: application/json',
    ];
    const origin = await rawEngine(`HTTP/1.1 200 OK\r\n${headers.join('\r\n')}\r\ncontent-length: 2\r\n\r\n{}`);
    const { gateway, socket } = await openAgentSide({ engine: () => ({ origin, pathPrefix: '' }) });
    socket.byHand = true;
    socket.put(...request(1));
    await socket.when('end', 1);
    expect(gateway.connections).toBe(1);
    expect(socket.all('head', 1)[0]?.headers.find(([name]) => name === 'content-type')?.[1]).toBe('application/json');
  });
});
