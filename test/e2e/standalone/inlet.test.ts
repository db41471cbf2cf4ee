/** Small requests go by the inlet of a whole gateway, and whatever a client does on its connection comes to the same as by HTTP. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Gateway } from '../../support/gateway.ts';
import { chatBody, type House, openHouse } from '../../support/house.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { dial, postBytes } from '../../support/raw.ts';

let house: House;
beforeAll(async () => {
  house = await openHouse();
});
afterAll(endAll);

const bytesOf = (body: unknown, more: Record<string, string> = {}) =>
  postBytes(`${house.gateway.url}/v1/chat/completions`, { authorization: `Bearer ${house.key}`, ...more }, body);

async function client(url = house.gateway.url) {
  const socket = await dial(url);
  const seen = { socket, heard: '', ended: false, closed: false };
  socket.on('data', (piece) => {
    seen.heard += piece;
  });
  socket.on('end', () => {
    seen.ended = true;
  });
  socket.on('close', () => {
    seen.closed = true;
  });
  socket.on('error', () => undefined);
  return seen;
}

const answers = (heard: string) => heard.split('HTTP/1.1 ').length - 1;

/** What was heard on one connection when it was asked these, each behind the answer to the one before. */
async function heads(bytes: string[]): Promise<string> {
  const one = await client();
  for (const [at, each] of bytes.entries()) {
    one.socket.write(each);
    await eventually(`answer ${at + 1}`, 10_000, () =>
      one.heard.split('"usage"').length - 1 > at || one.closed ? true : undefined,
    );
  }
  one.socket.destroy();
  return one.heard;
}

/** workerd writes the names of headers that it knows with capitals; the process that has the public socket does not. */
const byInlet = /\r\ncontent-type: application\/json\r\n/;
const byHttp = /\r\nContent-Type: application\/json\r\n/;

describe('the way in', () => {
  it('is the inlet for a small request, and for all that follow on its connection', async () => {
    const one = bytesOf(chatBody({ tokens: 3 }));
    const heard = await heads([one, one, one]);
    expect(answers(heard)).toBe(3);
    expect(heard).toMatch(byInlet);
    expect(heard).not.toMatch(byHttp);
  });

  it('is HTTP for another request, and for all that follow on its connection: nobody knows there where one ends', async () => {
    const one = bytesOf(chatBody({ tokens: 3 }));
    const heard = await heads([bytesOf(chatBody({ tokens: 3 }), { te: 'trailers' }), one]);
    expect(answers(heard)).toBe(2);
    expect(heard).toMatch(byHttp);
    expect(heard).not.toMatch(byInlet);
  });

  it('changes from one to the other in the middle of a connection', async () => {
    const one = bytesOf(chatBody({ tokens: 3 }));
    const heard = await heads([one, bytesOf(chatBody({ tokens: 3 }, { user: 'x'.repeat(100_000) })), one]);
    expect(answers(heard)).toBe(3);
    expect(heard.match(new RegExp(byInlet, 'g'))).toHaveLength(1);
    expect(heard.match(new RegExp(byHttp, 'g'))).toHaveLength(2);
  });

  it('takes a request in pieces, each when the one before it has arrived', async () => {
    const one = bytesOf(chatBody({ tokens: 3 }));
    for (const size of [1, 7, 100]) {
      const asking = await client();
      asking.socket.setNoDelay(true);
      for (let at = 0; at < one.length; at += size) {
        asking.socket.write(one.slice(at, at + size));
        await new Promise(setImmediate);
      }
      await eventually(`pieces of ${size}`, 5_000, () => (asking.heard.includes('"usage"') ? true : undefined));
      expect(answers(asking.heard)).toBe(1);
      asking.socket.destroy();
    }
  });

  it('is HTTP for all where there is to be no inlet', async () => {
    const without = await Gateway.start({ env: { OTELA_INLET: 'off' } });
    for (const [url, way] of [
      [without.url, byHttp],
      [house.gateway.url, byInlet],
    ] as const) {
      const one = await client(url);
      one.socket.write(bytesOf({ nothing: true }));
      await eventually('an answer', 5_000, () => (one.heard.endsWith('}') ? true : undefined));
      expect(one.heard).toMatch(way);
      one.socket.destroy();
    }
    await without.stop();
  });

  it('is closed to who does not know the secret', async () => {
    const key = Buffer.alloc(16, 'k').toString('base64');
    const ask = (secret: string) =>
      `GET /inlet HTTP/1.1\r\nhost: here\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: ${key}\r\nx-otela-inlet: ${secret}\r\n\r\n`;
    for (const secret of ['', '0'.repeat(32)]) {
      const one = await client();
      one.socket.write(ask(secret));
      await eventually('an answer', 5_000, () => (answers(one.heard) > 0 ? true : undefined));
      expect(one.heard).toMatch(/^HTTP\/1\.1 404 /);
      expect(one.heard).toContain('"not_found"');
      one.socket.destroy();
    }
  });
});

it('requests ahead of their answers are answered in their order', async () => {
  const one = await client();
  one.socket.write(
    [5, 1, 3].map((tokens) => bytesOf(chatBody({ tokens, tokensPerSecond: 50 }))).join('') +
      bytesOf({ nothing: true }) +
      bytesOf(chatBody({ tokens: 2 }), { te: 'trailers' }),
  );
  await eventually('all', 10_000, () => (answers(one.heard) === 5 && one.heard.endsWith('}') ? true : undefined));
  const counts = [...one.heard.matchAll(/"completion_tokens":(\d+)/g)].map(([, count]) => Number(count));
  expect(counts).toEqual([5, 1, 3, 2]);
  expect([...one.heard.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status)).toEqual([
    '200',
    '200',
    '200',
    '400',
    '200',
  ]);
  one.socket.destroy();
});

it('an answer that comes slowly has its length, and a large one arrives whole', async () => {
  for (const tokens of [{ tokens: 40, tokensPerSecond: 50 }, { tokens: 60_000 }]) {
    const response = await house.ask('/v1/chat/completions', chatBody(tokens));
    const length = response.headers.get('content-length');
    const text = await response.text();
    if (tokens.tokens === 40) expect(length).toBe(String(Buffer.byteLength(text)));
    expect(JSON.parse(text)).toMatchObject({ usage: { completion_tokens: tokens.tokens } });
  }
});

it('a client that reads nothing holds up nobody', async () => {
  const deaf = await client();
  const before = house.engine.requests.at(-1)?.id ?? 0;
  deaf.socket.pause();
  deaf.socket.write(bytesOf(chatBody({ tokens: 400_000 })));
  await house.engine.when((request) => request.id > before && request.headAt !== undefined, 5_000, 'the request');
  const response = await house.ask('/v1/chat/completions', chatBody({ tokens: 3 }));
  expect(await response.json()).toMatchObject({ usage: { completion_tokens: 3 } });
  deaf.socket.destroy();
  await eventually('the engine is let go', 5_000, () => (house.engine.running() === 0 ? true : undefined));
});

it('a request in two pieces, far apart, is asked once', async () => {
  const one = await client();
  const bytes = bytesOf(chatBody({ tokens: 3 }));
  const before = house.engine.requests.length;
  one.socket.write(bytes.slice(0, -5));
  await new Promise((resolve) => setTimeout(resolve, 1_500)); // longer than the process waits for the rest
  one.socket.write(bytes.slice(-5));
  await eventually('an answer', 5_000, () => (one.heard.includes('"usage"') ? true : undefined));
  expect(one.heard).toMatch(byHttp);
  expect([answers(one.heard), house.engine.requests.length - before]).toEqual([1, 1]);
  one.socket.destroy();
});

it('who asks and asks and reads nothing is not asked about more; reading on a minute later, all of it comes', async () => {
  const one = await client();
  const before = house.engine.requests.length;
  const asked = () => house.engine.requests.length - before;
  one.socket.pause();
  const count = 600;
  one.socket.write(bytesOf(chatBody({ tokens: 12_000 })).repeat(count));
  let [seen, still] = [-1, 0];
  await eventually('it stops asking', 60_000, () => {
    still = asked() === seen ? still + 1 : 0;
    seen = asked();
    return seen > 0 && still >= 20 ? true : undefined;
  });
  expect(seen).toBeLessThan(count / 2); // what the kernel holds for both sides
  await new Promise((resolve) => setTimeout(resolve, 65_000)); // no reader is given up for its pace
  one.socket.resume();
  await eventually('all', 60_000, () => (answers(one.heard) === count ? true : undefined));
  one.socket.destroy();
}, 200_000);

it('a connection on which nobody speaks is closed, and one behind its answer stays for the next', async () => {
  const one = await client();
  one.socket.write(bytesOf(chatBody({ tokens: 3 })));
  await eventually('an answer', 5_000, () => (one.heard.includes('"usage"') ? true : undefined));
  expect(one.ended).toBe(false);
  await eventually('the end', 20_000, () => (one.ended ? true : undefined));
}, 30_000);

it('a workerd that stands still for seconds loses nobody’s request: who waits is answered, who left is not asked about', async () => {
  const workerd = house.gateway.workerd();
  const stays = await client();
  stays.socket.write(bytesOf(chatBody({ tokens: 20, tokensPerSecond: 20 })));
  await eventually('the engine has it', 5_000, () => (house.engine.running() > 0 ? true : undefined));
  const before = house.engine.requests.length;
  process.kill(workerd, 'SIGSTOP');
  try {
    const leaves = await client();
    leaves.socket.write(bytesOf(chatBody({ tokens: 3 })));
    const late = await client();
    late.socket.write(bytesOf(chatBody({ tokens: 3 })));
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    leaves.socket.end();
    await eventually('its end', 5_000, () => (leaves.closed ? true : undefined));
    process.kill(workerd, 'SIGCONT');
    for (const one of [stays, late])
      await eventually('an answer', 10_000, () => (one.heard.includes('"usage"') ? true : undefined));
    expect([answers(stays.heard), answers(late.heard), leaves.heard]).toEqual([1, 1, '']);
    await eventually('nothing runs', 5_000, () => (house.engine.running() === 0 ? true : undefined));
    expect(house.engine.requests.length - before).toBeLessThanOrEqual(2);
    for (const one of [stays, late]) one.socket.destroy();
  } finally {
    process.kill(workerd, 'SIGCONT');
  }
}, 40_000);

it('workerd’s end is a broken connection for whoever waits, and the next is served by the inlet again', async () => {
  const waiting = await client();
  waiting.socket.write(bytesOf(chatBody({ tokens: 1_000, tokensPerSecond: 20 })));
  await eventually('the engine has it', 5_000, () => (house.engine.running() > 0 ? true : undefined));
  process.kill(house.gateway.workerd(), 'SIGKILL');
  await eventually('it is told', 5_000, () => (waiting.closed ? true : undefined));
  expect(waiting.heard).toBe('');
  await eventually('the next by the inlet', 20_000, async () => {
    const one = await client();
    one.socket.write(bytesOf(chatBody({ tokens: 3 })));
    await eventually('an answer', 10_000, () => (one.heard.includes('\r\n\r\n') || one.closed ? true : undefined));
    one.socket.destroy();
    return byInlet.test(one.heard) && one.heard.startsWith('HTTP/1.1 200') ? true : undefined;
  });
}, 40_000);
