import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Env } from '../../../gateway/env.ts';
import { type Offer, Outlet } from '../../../gateway/tunnel/outlet.ts';
import type { UpstreamStream } from '../../../shared/upstream/upstream-stream.ts';
import { Front, settle } from './front.ts';
import { OfferedAnswers } from './offered-answers.ts';

/** As much has to be free for anything more to come. */
const ROOM_BYTES = 68 * 1024;
const encode = (text: string) => new TextEncoder().encode(text);

let front: Front;
let outlet: Outlet;
let answers: OfferedAnswers;
beforeEach(async () => {
  front = new Front();
  outlet = new Outlet({ OUTLET: front, OUTLET_SECRET: 'secret' } as unknown as Env, 'session');
  await outlet.connect();
  expect(outlet.open).toBe(true);
  answers = new OfferedAnswers(outlet, front);
});
afterEach(() => {
  for (const socket of front.sockets) socket.close(1000);
});

/** After so long a response is out, if ever. */
const LONG_OUT_MS = 80;
const wait = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

const offered = (stream?: number) => answers.offered(stream);
const data = (text: string, stream?: number) => answers.data(text, stream);
const end = () => answers.end();
const announced = (offers: Offer[]) => answers.announced(offers);

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
    expect(answers.overs).toEqual([undefined]);
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
    expect(answers.overs).toHaveLength(1);
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
    answers.offset = 0;
    const two = offered(2);
    data('b', 2);
    await settle();
    for (const { offers } of [one, two]) {
      const [offer] = offers;
      if (offer?.kind === 'departs') await front.take(offer.number);
    }
    const before = front.messages;
    answers.exchanges.get(1)?.onFrame({ type: 'data', stream: 1, offset: 1, bytes: encode('A') });
    answers.exchanges.get(2)?.onFrame({ type: 'data', stream: 2, offset: 1, bytes: encode('B') });
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
  const broken = (exchange: UpstreamStream) => exchange.fail('lost', 'nobody resumed the stream');

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
    expect(answers.overs).toEqual(['cancelled']);
    expect(outlet.holds(name)).toBe(false);
    data('late');
    await settle();
    expect(front.said).toBe('');
  });

  test('before its answer was taken: by word of the Worker', async () => {
    const { offers, name } = offered();
    await announced(offers);
    outlet.leave(name);
    expect(answers.overs).toEqual(['cancelled']);
  });

  test('with the process that owned its socket', async () => {
    const { offers } = offered();
    await front.take(await announced(offers));
    front.refuses = true;
    front.sockets.at(-1)?.close(1011);
    await settle();
    expect(answers.overs).toEqual(['cancelled']);
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
    expect(answers.overs).toEqual(['cancelled']);
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
    expect(answers.overs).toEqual(['failed']);
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
