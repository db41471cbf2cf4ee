/** Attempts that lose their socket, gateway or agent. */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { CLAIM_FRAME } from '../../../shared/attempts/abandoned-attempts.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { STREAM_WINDOW_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { promise } from '../../support/patience.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';
import { chatBody } from '../../support/test-cluster.ts';
import { openAgentSide } from '../../support/tunnel/agent-side.ts';
import { type HandGateway, type HandSocket, openingFrame } from '../../support/tunnel/hand-gateway.ts';

afterEach(endAll);

const MIB = 1024 * 1024;

/** Opens an attempt with its whole body. */
function ask(
  socket: HandSocket,
  stream: number,
  standIn: object,
  more: object = {},
  requestId = `request-${stream}`,
): void {
  socket.byHand = true;
  const bytes = new TextEncoder().encode(JSON.stringify(chatBody(standIn, more)));
  const frames: Frame[] = [
    openingFrame(stream, { requestId, bodyLength: bytes.length, streaming: 'stream' in more }),
    { type: 'data', stream, offset: 0, bytes },
    { type: 'end', stream, offset: bytes.length },
  ];
  socket.put(...frames);
}

const received = (socket: HandSocket, stream: number) =>
  socket.all('data', stream).reduce((sum, { bytes }) => sum + bytes.length, 0);

describe('a response that no gateway claims after its socket was lost', () => {
  it('is cancelled after ten seconds, and its usage is told by name on the socket that is there', async () => {
    const { gateway, engine, socket, tunnel } = await openAgentSide();
    ask(socket, 1, { tokens: 10_000, tokensPerSecond: 50 }, { stream: true });
    await socket.when('data', 1);
    socket.socket.close(4003, 'go');
    const next = await gateway.socket(1);
    await next.greet();
    const report = await next.when('report', undefined, 13_000);
    expect(report).toMatchObject({
      stream: 1,
      name: { requestId: 'request-1', attempt: 1, receipt: 'receipt' },
      usage: { aborted: true, complete: false },
    });
    expect(engine.running()).toBe(0);
    expect(tunnel.inFlight).toBe(0);
  });

  it('is cancelled at once where a claim wants more than is kept', async () => {
    const { engine, socket } = await openAgentSide();
    ask(socket, 1, { bytes: 20 * MIB });
    for (let consumed = 0; consumed < 3 * MIB; ) {
      await eventually('a window', 5_000, () =>
        received(socket, 1) >= consumed + STREAM_WINDOW_BYTES ? true : undefined,
      );
      consumed = received(socket, 1);
      socket.put({ type: 'credit', stream: 1, consumed, window: STREAM_WINDOW_BYTES });
      socket.put({ type: 'credit', stream: 0, consumed, window: 4 * MIB });
    }
    socket.put(openingFrame(2, { requestId: 'request-1', resume: true, answerOffset: 0 }));
    expect(await socket.when('reset', 2)).toMatchObject({ code: 'unknown' });
    await eventually('the engine is free', 2_000, () => (engine.running() === 0 ? true : undefined));
    await socket.when('report', 1);
  });

  it.each([
    { asked: undefined, bytes: 200_000, kept: true },
    { asked: '16384', bytes: 200_000, kept: false },
    { asked: '0', bytes: 1_000, kept: false },
    { asked: '-1', bytes: 200_000, kept: true },
    { asked: 'all', bytes: 200_000, kept: true },
    { asked: '999999', bytes: 400_000, kept: false },
    { asked: '9999999999999999', bytes: 400_000, kept: false },
  ])(
    'keeps of $bytes acknowledged bytes what its gateway asks for ($asked), and no more than 256 KiB',
    async ({ asked, bytes, kept }) => {
      const { socket } = await openAgentSide({}, undefined, asked);
      ask(socket, 1, { bytes });
      socket.put({ type: 'credit', stream: 1, consumed: 0, window: STREAM_WINDOW_BYTES });
      for (let consumed = 0; consumed < bytes; ) {
        await eventually('more bytes', 5_000, () => (received(socket, 1) > consumed ? true : undefined));
        consumed = received(socket, 1);
        socket.put({ type: 'credit', stream: 1, consumed, window: STREAM_WINDOW_BYTES });
        socket.put({ type: 'credit', stream: 0, consumed, window: 4 * MIB });
      }
      await socket.when('end', 1);
      socket.put(openingFrame(2, { requestId: 'request-1', resume: true, answerOffset: 0 }));
      if (kept) expect((await socket.when('end', 2)).offset).toBe(bytes);
      else expect(await socket.when('reset', 2)).toMatchObject({ code: 'unknown' });
    },
  );

  it('goes on from any offset that is kept, under any number, as often as asked', async () => {
    const { gateway, engine, socket } = await openAgentSide();
    ask(socket, 1, { bytes: 200_000 });
    await socket.when('end', 1);
    for (const [n, offset] of [200_000, 0, 123_456, 199_999].entries()) {
      const stream = 10 + n;
      socket.put(openingFrame(stream, { requestId: 'request-1', resume: true, answerOffset: offset }));
      expect((await socket.when('end', stream)).offset).toBe(200_000);
      expect(received(socket, stream)).toBe(200_000 - offset);
    }
    expect(engine.requests).toHaveLength(1);
    expect(gateway.connections).toBe(1);
  });
});

it('an answer that is dropped before it went out is told of: its reader would wait for the rest for ever', async () => {
  const answer = Buffer.alloc(250_000, 'a');
  const server = createServer((request, response) => {
    request.resume().on('end', () => response.end(answer));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const { socket } = await openAgentSide({ engine: () => ({ origin: `http://127.0.0.1:${port}`, pathPrefix: '' }) });
  // More than 64 MiB together, and no credit for any byte beyond the first mebibyte.
  for (let stream = 1; stream <= 300; stream++) ask(socket, stream, {});
  const { code } = await socket.when('reset', undefined, 60_000);
  expect(code).toBe('engine_closed');
});

it('an answer that is cancelled when the engine is done with it, and its end waits for credit, is still reported', async () => {
  const { engine, socket } = await openAgentSide();
  ask(socket, 1, { bytes: 400_000 });
  await eventually('the engine is done', 5_000, () =>
    engine.requests[0]?.finishedAt === undefined ? undefined : true,
  );
  await eventually('a window', 5_000, () => (received(socket, 1) === STREAM_WINDOW_BYTES ? true : undefined));
  socket.put({ type: 'reset', stream: 1, code: 'cancelled', message: '' });
  await socket.when('report', 1, 2_000);
  expect(socket.all('report', 1)).toHaveLength(1);
});

describe('an agent that drains', () => {
  it('waits until the last answer was handed on, not only made', async () => {
    const { engine, socket, tunnel } = await openAgentSide();
    ask(socket, 1, { bytes: 400_000 });
    await eventually('the engine is done', 5_000, () =>
      engine.requests[0]?.finishedAt === undefined ? undefined : true,
    );
    await eventually('a window', 5_000, () => (received(socket, 1) === STREAM_WINDOW_BYTES ? true : undefined));
    let drained = false;
    const draining = tunnel.drain().then(() => {
      drained = true;
    });
    socket.put(openingFrame(2, { bodyLength: 0 }));
    expect(await socket.when('reset', 2)).toMatchObject({ code: 'refused' });
    expect(drained).toBe(false);
    socket.put({ type: 'credit', stream: 1, consumed: STREAM_WINDOW_BYTES, window: STREAM_WINDOW_BYTES });
    await socket.when('end', 1);
    socket.put({ type: 'settled', streams: [1] });
    await draining;
  });

  it.each([
    ['has just gone', (gateway: HandGateway) => gateway.close()],
    ['does not say that it has stored the answer', async () => {}],
  ])('waits two seconds and no longer where nothing runs and the gateway %s', async (_what, happens) => {
    const { gateway, socket, tunnel } = await openAgentSide();
    ask(socket, 1, { bytes: 1000 });
    await socket.when('end', 1);
    const before = performance.now();
    const draining = tunnel.drain();
    await happens(gateway);
    await draining;
    expect(performance.now() - before).toBeGreaterThan(1_900);
    expect(performance.now() - before).toBeLessThan(promise(10_000));
  });

  it('waits longer than that for what runs beside an answer that the gateway does not take', async () => {
    const { engine, socket, tunnel } = await openAgentSide();
    ask(socket, 1, { bytes: 1000 });
    await socket.when('end', 1);
    ask(socket, 2, { delayMs: 3_000 });
    await eventually('it runs', 3_000, () => (engine.running() === 1 ? true : undefined));
    await tunnel.drain();
    expect(engine.running()).toBe(0);
    expect(socket.all('end', 2)).toHaveLength(1);
  });
});

describe('an agent that ends', () => {
  it('tells the gateway what still runs before it says good-bye', async () => {
    const { engine, socket, tunnel } = await openAgentSide();
    ask(socket, 1, { tokens: 10_000, tokensPerSecond: 50 }, { stream: true });
    ask(socket, 2, { delayMs: 60_000 });
    await socket.when('data', 1);
    await eventually('both run', 3_000, () => (engine.running() === 2 ? true : undefined));
    await tunnel.close();
    expect((await socket.closed).code).toBe(1000);
    for (const stream of [1, 2]) {
      expect(socket.all('reset', stream)[0]).toMatchObject({ code: 'engine_closed' });
      expect(socket.all('report', stream)).toHaveLength(1);
    }
    await eventually('the engine is free', 2_000, () => (engine.running() === 0 ? true : undefined));
  });
});

describe('a stream whose last word came', () => {
  const WHOLE = 'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n';

  it.each<[string, (response: ServerResponse) => void]>([
    ['breaks off', (response) => response.destroy()],
    ['stays open', () => {}],
    ['goes on with comments', (response) => setInterval(() => response.write(': still here\n\n'), 50).unref()],
  ])('is whole though its connection %s then', async (_, after) => {
    const server = createServer((_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(WHOLE, () => after(response));
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    atEnd(() => server.closeAllConnections());
    atEnd(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const engine = () => ({ origin: `http://127.0.0.1:${port}`, pathPrefix: '' });
    const { socket } = await openAgentSide({ engine });
    ask(socket, 1, {}, { stream: true });
    await socket.when('end', 1, 5_000);
    expect(socket.all('reset', 1)).toEqual([]);
    expect(await socket.when('report', 1)).toMatchObject({ usage: { complete: true, aborted: false } });
  });
});

describe('an engine that refuses the stream_options that the gateway put in', () => {
  const asked = (standIn: object, body: object = { stream: true }) => {
    const bytes = new TextEncoder().encode(JSON.stringify(chatBody({ tokens: 3, ...standIn }, body)));
    const insert = new TextEncoder().encode(',"stream_options":{"include_usage":true}');
    return { bytes, edits: [{ at: bytes.length - 1, remove: 0, insert }] };
  };
  const ask = (socket: HandSocket, stream: number, { bytes, edits }: ReturnType<typeof asked>, own = false) =>
    socket.put(
      openingFrame(stream, { bodyLength: bytes.length, streaming: true, dropUsage: true, edits: own ? [] : edits }),
      { type: 'data', stream, offset: 0, bytes },
      { type: 'end', stream, offset: bytes.length },
    );
  const textOf = (socket: HandSocket, stream: number) =>
    Buffer.concat(socket.all('data', stream).map(({ bytes }) => bytes)).toString();

  it('is asked again without them, once; its tokens are counted otherwise', async () => {
    const { engine, socket } = await openAgentSide();
    socket.byHand = true;
    ask(socket, 1, asked({ refusesUsage: true }));
    await socket.when('end', 1);
    expect(await socket.when('head', 1)).toMatchObject({ status: 200 });
    expect(textOf(socket, 1)).toContain('[DONE]');
    expect(await socket.when('report', 1)).toMatchObject({ usage: { complete: true, estimated: true } });
    ask(socket, 2, asked({ refusesUsage: true }));
    await socket.when('end', 2);
    expect(engine.requests.map(({ bodyStart }) => bodyStart.includes('stream_options'))).toEqual([true, false, false]);
  });

  it.each([
    ['another refusal', { status: 400 }, { stream: true }, false],
    ['the client’s own', { refusesUsage: true }, { stream: true, stream_options: { include_usage: true } }, true],
  ])('gets %s through as it is', async (_, standIn, body, own) => {
    const { engine, socket } = await openAgentSide();
    socket.byHand = true;
    ask(socket, 1, asked(standIn, body), own);
    await socket.when('end', 1);
    expect(await socket.when('head', 1)).toMatchObject({ status: 400 });
    expect(textOf(socket, 1)).toContain('"error"');
    expect(engine.requests).toHaveLength(1);
  });
});

describe('a response that another process of the gateway claims', () => {
  const OPEN = { requestId: 'request-1', resume: true, answerOffset: 0 };

  const STAND_IN = { tokens: 40, tokensPerSecond: 50 };
  const posts = (requests: readonly { method: string }[]) => requests.filter(({ method }) => method === 'POST');

  /** Two tunnels of one session. The attempt runs in the first one, and `claim` claims it on the second. */
  const twoTunnels = async (isOwn: boolean) => {
    const first = await openAgentSide();
    const second = await openAgentSide({ siblings: () => (isOwn ? [first.tunnel.attempts] : []) });
    ask(first.socket, 1, STAND_IN, { stream: true });
    await first.socket.when('data', 1);
    second.socket.byHand = true;
    return { first, second, claim: () => second.socket.put(openingFrame(7, OPEN)) };
  };

  it.each([true, false])(
    'goes on there from its first byte, with its usage (the first socket is lost: %s)',
    async (isLost) => {
      const { first, second, claim } = await twoTunnels(true);
      if (isLost) first.socket.socket.terminate();
      claim();
      await second.socket.when('head', 7);
      const { offset } = await second.socket.when('end', 7);
      expect(received(second.socket, 7)).toBe(offset);
      expect(await second.socket.when('report', 7)).toMatchObject({ usage: { complete: true } });
      expect([first.tunnel.inFlight, second.tunnel.inFlight]).toEqual([0, 0]);
      expect(posts(first.engine.requests)).toHaveLength(1);
    },
  );

  it('reaches the engine once if that process opens it again, because it does not know whether the first did', async () => {
    const { first, second } = await twoTunnels(true);
    first.socket.socket.terminate();
    ask(second.socket, 7, STAND_IN, { stream: true }, OPEN.requestId);
    const { offset } = await second.socket.when('end', 7);
    expect(received(second.socket, 7)).toBe(offset);
    await second.socket.when('report', 7);
    expect([...posts(first.engine.requests), ...posts(second.engine.requests)]).toHaveLength(1);
  });

  it('stays with its reader if another process only cancels what it opened before', async () => {
    const { first, second } = await twoTunnels(true);
    const claim = { ...CLAIM_FRAME, requestId: OPEN.requestId, attempt: 1, answerOffset: 0, stream: 7 };
    second.socket.put(claim, { type: 'reset', stream: 7, code: 'cancelled', message: '' });
    expect(await second.socket.when('reset', 7)).toMatchObject({ code: 'unknown' });
    expect(await first.socket.when('report', 1)).toMatchObject({ usage: { complete: true } });
  });

  it('is unknown to a gateway that may not claim it, and goes on where it is', async () => {
    const { first, second, claim } = await twoTunnels(false);
    claim();
    expect(await second.socket.when('reset', 7)).toMatchObject({ code: 'unknown' });
    await first.socket.when('end', 1);
  });
});
