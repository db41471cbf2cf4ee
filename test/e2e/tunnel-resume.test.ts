/**
 * Faults that a client must not notice: the tunnel object of its response is lost, or the socket of its node is cut.
 */
import { createHash } from 'node:crypto';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { describe, expect, it } from 'vitest';
import { eventually } from '../support/processes.ts';
import { patternSha256, patternStream } from '../support/raw.ts';
import { chatBody } from '../support/test-cluster.ts';
import { OwnNode } from '../support/tunnel/own-node.ts';

const MIB = 1024 * 1024;

const own = new OwnNode();

/** Asserts that the engine got `times` requests, and that as many records are stored, the newest like `usage`. */
async function settledAs(usage: object, times = 1): Promise<void> {
  expect(own.bench.engine.requests.length).toBe(times);
  const records = await own.shop.settled(own.bench, times);
  expect(records[0]).toMatchObject(usage);
  await own.shop.rest(own.bench);
  expect(await own.shop.usage(own.bench)).toHaveLength(times);
}

/** Reads a response to its end, and calls `at` once when `bytes` of it have arrived. */
async function readWith(response: Response, bytes: number, at: () => Promise<void> | void): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  let called = false;
  if (response.body === null) throw new Error('no body');
  for await (const piece of response.body) {
    pieces.push(Buffer.from(piece));
    length += piece.length;
    if (called || length < bytes) continue;
    called = true;
    await at();
  }
  expect(called).toBe(true);
  return Buffer.concat(pieces);
}

const unary = (standIn: object, more: object = {}) =>
  chatBody({ id: 'same', ...standIn }, { model: own.model, ...more });
const stream = (standIn: object) => unary(standIn, { stream: true });
const speech = (bytes: number) => ({ model: own.model, input: 'x', voice: 'x', stand_in: { bytes } });
const COUNTED = { completion: 60, complete: true, aborted: false, estimated: false };

/** Ways to lose the object or socket that carries a response. */
const LOSSES: Record<string, () => Promise<void> | void> = {
  'the object ends': () => own.shop.crash(own.bench),
  'the socket is cut': () => own.bench.path.cut(),
  'the object ends and the socket is cut': async () => {
    await own.shop.crash(own.bench);
    own.bench.path.cut();
  },
};

describe.each(Object.entries(LOSSES))('%s', (_what, lose) => {
  it('in mid-stream: the stream is whole', async () => {
    const expected = await (await own.shop.ask('/v1/chat/completions', stream({ tokens: 60 }))).text();
    const response = await own.shop.ask('/v1/chat/completions', stream({ tokens: 60, tokensPerSecond: 40 }));
    const text = await readWith(response, expected.length / 3, lose);
    expect(text.toString()).toBe(expected);
    await settledAs(COUNTED, 2);
  });

  it('before the head of a stream: the stream is whole', async () => {
    const asked = own.shop.ask('/v1/chat/completions', stream({ tokens: 60, delayMs: 1_500 }));
    await own.bench.engine.when(() => true, 5_000);
    await lose();
    const response = await asked;
    expect(response.headers.get('x-otela-attempts')).toBe('1');
    expect(await response.text()).toContain('[DONE]');
    await settledAs(COUNTED);
  });

  it('before a unary answer: the answer is whole', async () => {
    const asked = own.shop.ask('/v1/chat/completions', unary({ tokens: 60, delayMs: 1_500 }));
    await own.bench.engine.when(() => true, 5_000);
    await lose();
    const response = await asked;
    expect(response.status).toBe(200);
    expect(response.headers.get('x-otela-attempts')).toBe('1');
    expect(await response.json()).toMatchObject({ usage: { completion_tokens: 60 } });
    await settledAs(COUNTED);
  });

  it('in the middle of an answer of 5 MiB: every byte of it arrives once', async () => {
    const response = await own.shop.ask('/v1/audio/speech', speech(5 * MIB));
    const bytes = await readWith(response, 2 * MIB, lose);
    expect(bytes.length).toBe(5 * MIB);
    expect(createHash('sha256').update(bytes).digest('hex')).toBe(patternSha256(5 * MIB));
    await settledAs({ complete: true });
  });

  it('in the middle of a request of 5 MiB: the engine gets every byte of it once', async () => {
    const before = own.bench.path.toAgent;
    const pad = 'p'.repeat(5 * MIB);
    const asked = own.shop.ask('/v1/chat/completions', unary({ tokens: 60 }, { pad }));
    await own.bench.path.when(() => own.bench.path.toAgent > before + 2 * MIB);
    await lose();
    const response = await asked;
    expect(response.status, await response.clone().text()).toBe(200);
    const sent = Buffer.from(JSON.stringify(unary({ tokens: 60 }, { pad })));
    const [seen] = own.bench.engine.requests.slice(-1);
    expect(seen?.bodySha256).toBe(createHash('sha256').update(sent).digest('hex'));
    await settledAs(COUNTED);
  });
});

it('a socket cut in the middle of an opaque upload of 5 MiB: the engine gets every byte of it once', async () => {
  const before = own.bench.path.toAgent;
  const asked = upload(5 * MIB);
  await own.bench.path.when(() => own.bench.path.toAgent > before + 2 * MIB);
  own.bench.path.cut();
  expect((await asked).statusCode).toBe(200);
  const [seen] = own.bench.engine.requests.slice(-1);
  expect(seen).toMatchObject({ bodyBytes: 5 * MIB, bodySha256: patternSha256(5 * MIB) });
  expect(own.bench.engine.requests.length).toBe(1);
});

it('an opaque upload beyond 1 MiB is lost with its object: 502, and the next one is answered', async () => {
  const before = own.bench.path.toAgent;
  const asked = upload(5 * MIB);
  await own.bench.path.when(() => own.bench.path.toAgent > before + 2 * MIB);
  await own.shop.crash(own.bench);
  expect((await asked).statusCode).toBe(502);
  await eventually('the engine is free', 5_000, () => own.bench.engine.running() === 0 || undefined);
  expect((await upload(MIB)).statusCode).toBe(200);
});

function upload(bytes: number): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${own.shop.key}`,
      'content-type': 'multipart/form-data; boundary=x',
      'x-otela-model': own.model,
    };
    const request = httpRequest(new URL('/v1/audio/transcriptions', own.shop.url), { method: 'POST', headers });
    request.once('response', (response) => resolve(response.resume())).once('error', reject);
    patternStream(bytes).pipe(request);
  });
}

it('a reader that catches up while its node is cut off gets the rest when the node is back', async () => {
  const size = 64 * MIB; // more than the kernel's buffers on the way hold
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const headers = { authorization: `Bearer ${own.shop.key}`, 'content-type': 'application/json' };
    const request = httpRequest(new URL('/v1/audio/speech', own.shop.url), { method: 'POST', headers });
    request.once('response', resolve).once('error', reject);
    request.end(JSON.stringify(speech(size)));
  });
  const hash = createHash('sha256');
  let read = 0;
  response.on('data', (piece: Buffer) => {
    hash.update(piece);
    read += piece.length;
  });
  response.pause();
  await still('the flow to a reader that does not read', () => own.bench.path.toGateway);
  own.bench.path.down();
  response.resume();
  await still('what was under way', () => read);
  expect(read).toBeLessThan(size);
  own.bench.path.mend();
  await eventually('all of it is read', 15_000, () => (read === size ? true : undefined));
  expect(hash.digest('hex')).toBe(patternSha256(size));
});

/** Waits until `measure` has not changed for half a second. */
async function still(what: string, measure: () => number): Promise<void> {
  let last = -1;
  let since = Date.now();
  await eventually(`${what} comes to rest`, 20_000, () => {
    if (measure() !== last) {
      last = measure();
      since = Date.now();
    }
    return Date.now() - since > 500 ? true : undefined;
  });
}

it('none of it was an error inside the gateway', () => {
  expect(own.shop.logs()).toEqual([]);
});
