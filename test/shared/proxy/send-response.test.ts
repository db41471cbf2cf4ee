import { expect, test } from 'vitest';
import { AttemptError } from '../../../shared/attempts/attempt-error.ts';
import type { ResponseStream } from '../../../shared/attempts/started-response.ts';
import { dispatchQueued } from '../../../shared/proxy/dispatch-queued.ts';
import type { ProxyResponse, ResponseSink } from '../../../shared/proxy/proxy-http-types.ts';
import { respond, respondWhenReady } from '../../../shared/proxy/send-response.ts';
import { entry } from '../routing/support.ts';
import { contextOf, FakeHost, type Script, settle, textOf } from './fake-host.ts';

const UNARY = JSON.stringify({ model: 'm' });
const bytes = (text: string) => new TextEncoder().encode(text);

/** A host with one node; the host's log has its releases. */
function hostOf(script: Script = ['data: 1\n\n', 'data: [DONE]\n\n']) {
  const host = new FakeHost();
  host.add(entry('a'), script);
  host.reservation = {
    headers: { 'x-ratelimit-remaining-requests': '9' },
    concurrent: false,
    release: ({ attempts, isComplete }) => host.log.push(`released: ${isComplete ? 'whole' : attempts}`),
  };
  return host;
}

/** Makes the node answer with this stream. */
function answers(host: FakeHost, stream: Partial<ResponseStream>, type = 'application/json'): void {
  const head = { headers: [['content-type', type]] as [string, string][], forwardMs: 1, engineMs: 2 };
  const cancel = () => void host.log.push('cancelled');
  host.open = () => Promise.resolve({ status: 200, head, read: async () => undefined, cancel, ...stream });
}

async function answered(host: FakeHost, whole?: string): Promise<ProxyResponse> {
  const context = await contextOf(host, whole === undefined ? {} : { whole });
  const response = respond(await dispatchQueued(context), context);
  return response;
}

/** Writes each call to the host's log. */
function sinkOf({ log }: FakeHost, more: Partial<ResponseSink> = {}): ResponseSink {
  return {
    write: (piece) => void log.push(`write: ${new TextDecoder().decode(piece).trim()}`),
    end: () => void log.push('end'),
    abort: () => void log.push('abort'),
    ...more,
  };
}

async function write({ body }: ProxyResponse, sink: ResponseSink): Promise<void> {
  if (typeof body !== 'function') throw new Error('the body is whole');
  await body(sink);
}

test('the head tells the node, the attempts and what is left of the limits', async () => {
  const { status, headers } = await answered(hostOf());
  expect(status).toBe(200);
  expect(headers).toMatchObject({
    'x-request-id': 'req',
    'x-otela-node': 'a',
    'x-otela-attempts': '1',
    'x-otela-served-model': 'm',
    'x-ratelimit-remaining-requests': '9',
    'server-timing': expect.stringContaining('dur='),
  });
});

test('a stream gives its reservation back before its end, which the client’s next request may overtake', async () => {
  const host = hostOf();
  await write(await answered(host), sinkOf(host));
  expect(host.log.slice(-5)).toEqual(['write: data: [DONE]', 'ended: a, complete', 'over', 'released: whole', 'end']);
});

test('a client that leaves in mid-stream ends the engine’s work, and its response is never ended cleanly', async () => {
  const host = hostOf();
  const response = await answered(host);
  const refuse = () => Promise.reject(new Error('the client left'));
  await write(response, sinkOf(host, { write: refuse }));
  expect(host.log.slice(-5)).toEqual(['released: 1', 'ended: a, left', 'cancelled', 'left', 'abort']);
});

test('a stream that breaks off ends with an error in-band', async () => {
  const host = hostOf(['data: 1\n\n', new AttemptError('lost', 'gone')]);
  await write(await answered(host), sinkOf(host));
  expect(host.log.at(-2)).toMatch(/^write: data: \{"error":.*upstream_error/);
  expect(host.log.at(-1)).toBe('end');
  expect(host.log).toContain('broke: lost, upstream_error');
});

test('a whole answer is one body, and an engine’s refusal costs no tokens', async () => {
  for (const status of [200, 429]) {
    const host = hostOf();
    answers(host, { status, whole: bytes('{"ok":1}'), length: 8 });
    const response = await answered(host, UNARY);
    expect([response.status, await textOf(response), response.length]).toEqual([status, '{"ok":1}', 8]);
    expect(host.log.slice(-2)).toEqual([`released: ${status === 200 ? 'whole' : 0}`, 'over']);
  }
});

test('an answer that came in pieces and is complete is one body as well', async () => {
  const host = hostOf();
  const rest = [bytes('{"a":'), bytes('1}')];
  answers(host, { read: async () => rest.shift() });
  const response = await answered(host, UNARY);
  expect(response.body).toBeInstanceOf(Uint8Array);
  expect(await textOf(response)).toBe('{"a":1}');
});

test('204 has no body', async () => {
  const host = hostOf();
  answers(host, { status: 204 });
  expect((await answered(host, UNARY)).body).toBeNull();
});

test.each([
  ['the rest went out', undefined, ['ended: a, complete', 'over', 'released: whole']],
  [
    'it broke off',
    new AttemptError('lost', 'gone'),
    ['ended: a, failed', 'broke: lost, upstream_error', 'released: 1'],
  ],
  ['the client left', new Error('left'), ['ended: a, left', 'cancelled', 'left', 'released: 1']],
])('an offloaded response is on record as its host says: %s', async (_, failure, log) => {
  const host = hostOf();
  const gate = Promise.withResolvers<void>();
  const first = [bytes('data: 1\n\n')];
  answers(
    host,
    { read: async () => first.shift(), offload: { rest: 7, over: () => gate.promise } },
    'text/event-stream',
  );
  const response = await answered(host);
  expect([response.rest, await textOf(response)]).toEqual([7, 'data: 1\n\n']);
  const before = host.log.length;
  await settle();
  expect(host.log.length).toBe(before); // nothing is over yet
  if (failure === undefined) gate.resolve();
  else gate.reject(failure);
  await settle();
  expect(host.log.slice(before)).toEqual(log);
});

/** A request to a late engine: a comment was sent, then `settleIt` decides. */
async function late(host: FakeHost, sink: ResponseSink = sinkOf(host)) {
  const context = await contextOf(host);
  const gate = Promise.withResolvers<void>();
  const pending = gate.promise.then(() => dispatchQueued(context));
  const response = respondWhenReady(pending, context);
  const writing = write(response, sink);
  await settle();
  return { response, writing, gate, host };
}

test('a late stream begins with a comment, one more every 15 s however slow its host is, and what its head would have told', async () => {
  const host = hostOf();
  host.clock.slowdown = 20;
  const { response, writing, gate } = await late(host);
  expect(response).toMatchObject({
    status: 200,
    headers: { 'content-type': 'text/event-stream', 'x-otela-served-model': 'm' },
  });
  await host.clock.advance(15_000);
  await host.clock.advance(14_999);
  expect(host.log).toEqual(['write: : ping', 'write: : ping']);
  gate.resolve();
  await writing;
  expect(host.log).toContain('answered: 200 by a');
  expect(host.log.filter((line) => line.startsWith('write'))).toEqual([
    'write: : ping',
    'write: : ping',
    expect.stringMatching(/^write: : otela node=a .*attempts=1/),
    'write: data: 1',
    'write: data: [DONE]',
  ]);
});

test('a client that leaves while its stream is late lets go of the answer that comes nevertheless', async () => {
  const host = hostOf();
  const { gate, writing } = await late(host, sinkOf(host, { write: () => Promise.reject(new Error('left')) }));
  await writing;
  expect(host.log).toEqual(['left', 'released: 0']);
  gate.resolve();
  await settle();
  expect(host.log.slice(-2)).toEqual(['ended: a, left', 'cancelled']);
});

test('a late stream that no node answers says so in-band and pays nothing', async () => {
  const host = hostOf();
  const { gate, writing } = await late(host);
  gate.reject(new AttemptError('first_byte_timeout', 'slow'));
  await writing;
  expect(host.log.slice(1, 3)).toEqual(['released: 0', 'refused late: upstream_timeout']);
  expect(host.log.at(-2)).toMatch(/^write: data: \{"error":.*upstream_timeout/);
});

test('an engine’s own error behind a 200 is quoted in-band, 4 KiB of it at most', async () => {
  const host = hostOf();
  const { gate, writing } = await late(host);
  answers(host, { status: 400, whole: undefined, read: once(bytes(`no such tool ${'x'.repeat(10_000)}`)) });
  gate.resolve();
  await writing;
  expect(host.log).toContain('broke: engine_status, upstream_error');
  expect(host.log).toContain('released: 0');
  const told = host.log.at(-2) ?? '';
  expect(told).toContain('The engine answered 400: no such tool xxx');
  expect(told.length).toBeLessThan(4_096 + 200);
});

function once(piece: Uint8Array): () => Promise<Uint8Array | undefined> {
  const rest = [piece];
  return async () => rest.shift();
}
