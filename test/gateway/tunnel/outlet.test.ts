import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Env } from '../../../gateway/env.ts';
import type { Asker } from '../../../gateway/tunnel/ask.ts';
import type { AttemptFailure, AttemptRequest, AttemptResult } from '../../../gateway/tunnel/attempt.ts';
import { Departure } from '../../../gateway/tunnel/departure.ts';
import { type Offer, Outlet } from '../../../gateway/tunnel/outlet.ts';
import { Exchange } from '../../../shared/asking/exchange.ts';
import { findEndpoint } from '../../../shared/openai/endpoints.ts';
import { readFrames, writeFrame } from '../../../shared/wire/frame-codec.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { FrameWriter } from '../../../shared/wire/writer.ts';

const STREAM = 7;
/** As much has to be free for anything more to come. */
const ROOM_BYTES = 68 * 1024;
const chat = findEndpoint('POST', '/v1/chat/completions');
const encode = (text: string) => new TextEncoder().encode(text);
const decode = (bytes: Uint8Array | undefined) => new TextDecoder().decode(bytes);

/** The process that owns the public socket, spoken by hand. */
class Front {
  readonly frames: Frame[] = [];
  readonly sockets: WebSocket[] = [];
  messages = 0;
  refuses = false;

  fetch = async (_url: unknown, init?: { headers?: unknown }): Promise<Response> => {
    if (this.refuses) throw new Error('refused');
    expect(init?.headers).toMatchObject({ 'x-otela-outlet': 'secret', 'x-otela-session': 'session' });
    const { 0: theirs, 1: ours } = new WebSocketPair();
    ours.binaryType = 'arraybuffer';
    ours.accept();
    ours.addEventListener('message', ({ data }) => {
      this.messages++;
      readFrames(new Uint8Array(data as ArrayBuffer), (frame) =>
        this.frames.push(frame.type === 'data' ? { ...frame, bytes: frame.bytes.slice() } : frame),
      );
    });
    this.sockets.push(ours);
    return new Response(null, { status: 101, webSocket: theirs });
  };

  async send(...frames: Frame[]): Promise<void> {
    const out = new FrameWriter();
    let previous: number | undefined;
    for (const frame of frames) previous = writeFrame(out, frame, previous);
    this.sockets.at(-1)?.send(out.take());
    await settle();
  }

  take(stream: number, window = 256 * 1024): Promise<void> {
    return this.send({ type: 'credit', stream, consumed: 0, window });
  }

  get said(): string {
    return this.frames.map((frame) => (frame.type === 'data' ? decode(frame.bytes) : `<${frame.type}>`)).join('');
  }
}

/** Both ends of a WebSocket in one isolate: what was sent is there some turns later. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setTimeout(resolve, 0));
}

let front: Front;
let outlet: Outlet;
let exchanges: Map<number, Exchange>;
let overs: (AttemptFailure | undefined)[];
beforeEach(async () => {
  front = new Front();
  outlet = new Outlet({ OUTLET: front, OUTLET_SECRET: 'secret' } as unknown as Env, 'session');
  await outlet.connect();
  expect(outlet.open).toBe(true);
  exchanges = new Map();
  overs = [];
});
afterEach(() => {
  for (const socket of front.sockets) socket.close(1000);
});

let requests = 0;

/** After so long a response is out, if ever. */
const LONG_OUT_MS = 80;
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** An answer whose head is there, offered. */
function offered(stream = STREAM) {
  if (chat === undefined || !('id' in chat)) throw new Error('no such endpoint');
  const request = {
    requestId: `request-${++requests}`,
    attempt: 1,
    endpoint: chat.id,
    streaming: true,
    acceptMs: 1000,
    answerOffset: 0,
  } as AttemptRequest;
  const here = overs;
  const host = {
    now: () => 0,
    onOver: (_exchange: Exchange, failure: AttemptFailure | undefined) => here.push(failure),
    renumber: () => 8,
  };
  const exchange = new Exchange(stream, request, null, host);
  exchanges.set(stream, exchange);
  let result: AttemptResult | undefined;
  exchange.attend((told) => {
    result = told;
  });
  exchange.onFrame({ type: 'accept', stream, bodyOffset: 0, bodyDone: true });
  exchange.onFrame({ type: 'head', stream, status: 200, engineTenths: 1, headers: [] });
  exchange.onMessageEnd();
  if (result?.kind !== 'head') throw new Error('no head');
  const offers: Offer[] = [];
  outlet.offer({ exchange, result }, (offer) => offers.push(offer));
  /** As the Worker's, when it gives its response to the runtime. */
  const response = () => {
    const asker = { env: {}, ctx: { waitUntil: () => {} }, signal: AbortSignal.any([]), leaving: { on: () => {} } };
    return new Departure(asker as unknown as Asker, 'session', request, 'marker');
  };
  return { exchange, name: `${request.requestId}/1`, offers, response };
}

let offsets = 0;
beforeEach(() => {
  offsets = 0;
});

function data(text: string, stream = STREAM): void {
  const bytes = encode(text);
  exchanges.get(stream)?.onFrame({ type: 'data', stream, offset: offsets, bytes });
  offsets += bytes.length;
}

function end(stream = STREAM): void {
  exchanges.get(stream)?.onFrame({ type: 'end', stream, offset: offsets });
}

/** The first data came; its number. */
async function announced(offers: Offer[]): Promise<number> {
  data('first ');
  const [offer] = offers;
  if (offer?.kind !== 'departs') throw new Error(`not offered: ${offer?.kind}`);
  expect(decode(offer.first)).toBe('first ');
  await settle();
  expect(front.frames).toEqual([{ type: 'accept', stream: offer.number, bodyOffset: 0, bodyDone: true }]);
  front.frames.length = 0;
  return offer.number;
}

describe('an answer that leaves by the outlet', () => {
  test('is offered with its first data, and follows once it is taken, to its end', async () => {
    const { offers, name } = offered();
    expect(offers).toEqual([]);
    const number = await announced(offers);
    data('second ');
    await settle();
    expect(front.said).toBe('');
    expect(outlet.holds(name)).toBe(true);
    await front.take(number);
    data('third');
    end();
    await settle();
    expect(front.said).toBe('second third<end>');
    expect(front.frames.at(-1)).toMatchObject({ stream: number, offset: 'second third'.length });
    expect(overs).toEqual([undefined]);
    expect(outlet.holds(name)).toBe(false);
  });

  test('ends where all of it was there before it was taken', async () => {
    const { offers } = offered();
    const number = await announced(offers);
    data('rest');
    end();
    await front.take(number);
    expect(front.said).toBe('rest<end>');
  });

  test('goes on where nobody has come for it yet, and the Worker has not responded', async () => {
    const { offers, exchange } = offered();
    const number = await announced(offers);
    await wait(LONG_OUT_MS);
    await front.take(number, 0);
    expect([front.said, exchange.over]).toEqual(['', false]);
    await front.take(number);
    data('second');
    await settle();
    expect(front.said).toBe('second');
  });

  test('ends where nobody has come for it long after the Worker’s response', async () => {
    const { offers, exchange, response } = offered();
    const number = await announced(offers);
    const over = expect(response().over(false)).rejects.toThrow('the client left');
    await front.take(number, 0);
    expect([front.said, exchange.over]).toEqual(['', false]);
    await wait(LONG_OUT_MS);
    await front.take(number, 0);
    expect(front.said).toBe('<reset>');
    await over;
    expect(overs).toHaveLength(1);
  });

  test('goes on however long it takes, where the response’s carrier would refuse it if nobody wanted it', async () => {
    const { offers, exchange, response } = offered();
    const number = await announced(offers);
    const over = response().over(true);
    await wait(LONG_OUT_MS);
    await front.take(number, 0);
    expect([front.said, exchange.over]).toEqual(['', false]);
    await front.take(number);
    end();
    await over;
  });

  test('is not asked about once it is taken', async () => {
    const { offers, exchange, response } = offered();
    const number = await announced(offers);
    const over = response().over(false);
    await front.take(number);
    await wait(LONG_OUT_MS);
    await front.take(number, 0);
    data('second');
    end();
    await over;
    await settle();
    expect([front.said, exchange.over]).toEqual(['second<end>', true]);
  });

  test('goes as far as its client takes it', async () => {
    const { offers } = offered();
    const number = await announced(offers);
    const window = 2 * ROOM_BYTES;
    const piece = 'x'.repeat(40 * 1024);
    await front.take(number, window);
    const sent = () => front.frames.reduce((sum, frame) => sum + (frame.type === 'data' ? frame.bytes.length : 0), 0);
    for (let n = 0; n < 5; n++) data(piece);
    await settle();
    expect(sent()).toBe(2 * piece.length); // with a third one there could be too little room for a piece of any size
    await front.send({ type: 'credit', stream: number, consumed: 2 * piece.length, window });
    expect(sent()).toBe(4 * piece.length);
    await front.send({ type: 'credit', stream: number, consumed: 4 * piece.length, window });
    end();
    await settle();
    expect(sent()).toBe(5 * piece.length);
    expect(front.frames.at(-1)).toMatchObject({ type: 'end', offset: 5 * piece.length });
  });

  test('shares a message with the others of its turn', async () => {
    const one = offered(1);
    data('a', 1);
    offsets = 0;
    const two = offered(2);
    data('b', 2);
    await settle();
    for (const { offers } of [one, two]) {
      const [offer] = offers;
      if (offer?.kind === 'departs') await front.take(offer.number);
    }
    const before = front.messages;
    exchanges.get(1)?.onFrame({ type: 'data', stream: 1, offset: 1, bytes: encode('A') });
    exchanges.get(2)?.onFrame({ type: 'data', stream: 2, offset: 1, bytes: encode('B') });
    await settle();
    expect(front.messages).toBe(before + 1);
    expect(front.said.endsWith('AB')).toBe(true);
  });

  test('that ends without data is told as empty', async () => {
    const { offers } = offered();
    end();
    expect(offers).toEqual([{ kind: 'empty' }]);
    await settle();
    expect(front.frames).toEqual([]);
  });
});

describe('an answer that breaks off', () => {
  const broken = (exchange: Exchange) => exchange.fail('lost', 'nobody resumed the stream');

  test('before its first data may be asked for elsewhere', () => {
    const { offers, exchange } = offered();
    broken(exchange);
    expect(offers).toEqual([{ kind: 'failed', code: 'lost' }]);
  });

  test.each(['before', 'after'])('%s it is taken tells its client so, without the last event', async (when) => {
    const { offers, exchange } = offered();
    const number = await announced(offers);
    if (when === 'before') broken(exchange);
    await front.take(number);
    if (when === 'after') broken(exchange);
    await settle();
    expect(front.said).toMatch(/^data: \{"error":.*"upstream_error".*\n\n<end>$/s);
    expect(front.said).not.toContain('[DONE]');
  });
});

describe('a client that leaves', () => {
  test('cancels the answer', async () => {
    const { offers, name } = offered();
    const number = await announced(offers);
    await front.take(number);
    await front.send({ type: 'reset', stream: number, code: 'cancelled', message: '' });
    expect(overs).toEqual(['cancelled']);
    expect(outlet.holds(name)).toBe(false);
    data('late');
    await settle();
    expect(front.said).toBe('');
  });

  test('before its answer was taken: by word of the Worker', async () => {
    const { offers, name } = offered();
    await announced(offers);
    outlet.leave(name);
    expect(overs).toEqual(['cancelled']);
  });

  test('with the process that owned its socket', async () => {
    const { offers } = offered();
    await front.take(await announced(offers));
    front.refuses = true;
    front.sockets.at(-1)?.close(1011);
    await settle();
    expect(overs).toEqual(['cancelled']);
    expect(outlet.open).toBe(false);
  });
});

describe('a Worker that needs the answer after all', () => {
  test('reads it behind the first data, and nobody else does', async () => {
    const { offers, name } = offered();
    const number = await announced(offers);
    data('second');
    const stream = outlet.takeBack(name)?.exchange.answer.open();
    end();
    expect(await new Response(stream).text()).toBe('second');
    await settle();
    expect(front.frames).toEqual([{ type: 'reset', stream: number, code: 'cancelled', message: '' }]);
  });

  test('is too late once it is taken', async () => {
    const { offers, name } = offered();
    await front.take(await announced(offers));
    expect(outlet.takeBack(name)).toBeUndefined();
  });
});

describe('the socket to the process that owns the public one', () => {
  test('is closed on garbage, which ends what was leaving, and opened anew', async () => {
    const { offers } = offered();
    await front.take(await announced(offers));
    front.sockets.at(-1)?.send(new Uint8Array([255, 255, 255]));
    await settle();
    expect(overs).toEqual(['cancelled']);
    expect(front.sockets).toHaveLength(2);
    expect(outlet.open).toBe(true);
  });

  test('that is lost between head and first data fails the answer, of which nothing went out', async () => {
    const { offers } = offered();
    front.refuses = true;
    front.sockets.at(-1)?.close(1011);
    await settle();
    data('first');
    expect(offers).toEqual([{ kind: 'failed', code: 'failed' }]);
    expect(overs).toEqual(['failed']);
  });

  test('stays until all has left', async () => {
    const { offers } = offered();
    const number = await announced(offers);
    outlet.rest();
    expect(outlet.open).toBe(true);
    await front.take(number);
    end();
    await settle();
    expect(front.said).toBe('<end>');
    expect(outlet.open).toBe(false);
  });
});
