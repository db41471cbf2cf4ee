import { expect, test } from 'vitest';
import { AttemptError } from '../../../shared/attempts/attempt-error.ts';
import { handleRequest } from '../../../shared/proxy/handle-request.ts';
import type { RequestResult } from '../../../shared/proxy/proxy-host.ts';
import type { TurnResult } from '../../../shared/queue/wait-queue.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { entry } from '../routing/support.ts';
import { FakeHost, requestOf, settle, textOf } from './fake-host.ts';

const STREAM = JSON.stringify({ model: 'm', stream: true });

function codeOf(body: unknown): unknown {
  return JSON.parse(String(body)).error.code;
}

test('an unknown path is 404 before the key is looked at, a wrong method 405, and a missing key 401', async () => {
  const host = new FakeHost();
  expect((await handleRequest(requestOf({ path: '/v1/nothing' }), host)).status).toBe(404);
  expect((await handleRequest(requestOf({ method: 'DELETE' }), host)).status).toBe(405);
  const keyless = { ...requestOf({ whole: STREAM }), header: () => undefined };
  expect(codeOf((await handleRequest(keyless, host)).body)).toBe('invalid_api_key');
});

test('a WebSocket to an endpoint is 426, so that its client asks by POST at once; another method stays 405', async () => {
  const host = new FakeHost();
  const socket = { headers: { upgrade: 'WebSocket', connection: 'Upgrade' }, path: '/v1/responses' };
  const response = await handleRequest(requestOf({ ...socket, method: 'GET' }), host);
  expect([response.status, codeOf(response.body)]).toEqual([426, 'upgrade_required']);
  expect(response.headers).toMatchObject({ upgrade: 'HTTP/1.1' });
  expect((await handleRequest(requestOf({ ...socket, method: 'DELETE' }), host)).status).toBe(405);
  expect((await handleRequest(requestOf({ path: '/v1/responses', method: 'GET' }), host)).status).toBe(405);
});

test('a stream goes to the client as the engine sent it, and is over before its end goes out', async () => {
  const host = new FakeHost();
  host.add(entry('a'), ['data: 1\n\n', 'data: [DONE]\n\n']);
  const response = await handleRequest(requestOf({ whole: STREAM, headers: { 'x-request-id': 'mine' } }), host);
  expect(response).toMatchObject({ status: 200, headers: { 'x-request-id': 'mine', 'x-otela-node': 'a' } });
  expect(await textOf(response)).toBe('data: 1\n\ndata: [DONE]\n\n');
  expect(host.log).toEqual(['attempt: 200', 'answered: 200 by a', 'ended: a, complete', 'over']);
});

test('a failed attempt is made on the next node, and the client sees only that', async () => {
  const host = new FakeHost();
  host.add(entry('a'), 'engine_unreachable');
  host.add(entry('b'), ['data: [DONE]\n\n']);
  const response = await handleRequest(requestOf({ whole: STREAM }), host);
  expect(response.headers).toMatchObject({ 'x-otela-node': 'b', 'x-otela-attempts': '2' });
  expect(host.log.slice(0, 2)).toEqual(['ended: a, failed', 'attempt: engine_unreachable']);
});

test('a stream that breaks off ends with an in-band error and without [DONE]', async () => {
  const host = new FakeHost();
  host.add(entry('a'), ['data: 1\n\n', new AttemptError('lost', 'the socket is gone')]);
  const text = await textOf(await handleRequest(requestOf({ whole: STREAM }), host));
  expect(text).toMatch(/^data: 1\n\ndata: \{"error":.*upstream_error/);
  expect(text).not.toContain('[DONE]');
  expect(host.log).toContain('broke: lost, upstream_error');
});

test('where no node is free the request waits for its turn, and then asks the nodes of now', async () => {
  const host = new FakeHost();
  host.waitMs = 60_000;
  host.turns.push({ kind: 'turn' });
  host.add(entry('a'), 'overloaded');
  const refresh = host.refresh.bind(host);
  host.refresh = () => {
    refresh();
    host.scripts.set('a', ['data: [DONE]\n\n']);
  };
  const wait = host.waitForTurn.bind(host);
  host.waitForTurn = async () => {
    await host.clock.advance(1_000);
    return wait();
  };
  const response = await handleRequest(requestOf({ whole: STREAM }), host);
  expect(response.status).toBe(200);
  expect(host.log).toContain('waited: turn');
  expect(host.log).toContain('refreshed');
});

test('a queue that is full is 429, and a wait that was in vain is 503', async () => {
  for (const [turn, code] of [
    [{ kind: 'full', retryAfterMs: 1_000 }, 'queue_full'],
    [{ kind: 'late' }, 'no_capacity'],
  ] as const) {
    const host = new FakeHost();
    host.waitMs = 60_000;
    host.turns.push(turn);
    host.add(entry('a'), 'overloaded');
    expect(codeOf((await handleRequest(requestOf({ whole: STREAM }), host)).body)).toBe(code);
  }
});

test('a stream whose engine is silent for 15 s is opened with comments, and errors are in-band from then on', async () => {
  const host = new FakeHost();
  host.add(entry('a'), ['data: 1\n\n']);
  let fail = (_: Error) => {};
  host.open = () =>
    new Promise((_, reject) => {
      fail = reject;
    });
  const pending = handleRequest(requestOf({ whole: STREAM }), host);
  await host.clock.advance(15_000);
  const response = await pending;
  expect(response.status).toBe(200);
  const text = textOf(response);
  await host.clock.advance(15_000);
  fail(new AttemptError('first_byte_timeout', 'slow'));
  expect(await text).toMatch(/^: ping\n\n: ping\n\ndata: \{"error":.*upstream_timeout/);
  expect(host.log).toContain('refused late: upstream_timeout');
});

test('however slow the host is, a stream is opened after 15 s: proxies cut a connection that is silent', async () => {
  const host = new FakeHost();
  host.clock.slowdown = 20;
  host.add(entry('a'), 'overloaded');
  host.waitMs = 60_000;
  host.waitForTurn = () => new Promise(() => {});
  const statuses: number[] = [];
  neverRejects(handleRequest(requestOf({ whole: STREAM }), host).then(({ status }) => statuses.push(status)));
  await host.clock.advance(15_000);
  expect(statuses).toEqual([200]);
});

/** The text of a stream that was opened after 15 s and then got no turn. `more`: milliseconds between the two. */
async function waited(host: FakeHost, more = 1): Promise<string> {
  host.waitMs = 60_000;
  let turn = (_: TurnResult) => {};
  host.waitForTurn = () =>
    new Promise((resolve) => {
      turn = resolve;
    });
  const pending = handleRequest(requestOf({ whole: STREAM }), host);
  await host.clock.advance(15_000);
  const text = textOf(await pending);
  await host.clock.advance(more);
  turn({ kind: 'late' });
  return text;
}

test('a stream that waits in the queue says so', async () => {
  const host = new FakeHost();
  host.add(entry('a'), 'overloaded');
  expect(await waited(host)).toMatch(/^: otela queued\n\ndata: .*no_capacity/);
});

test('a stream that waits in the queue says its place, and says nothing late where the queue does not answer', async () => {
  const host = new FakeHost();
  host.add(entry('a'), 'overloaded');
  host.positionInQueue = () => Promise.resolve(3);
  expect(await waited(host)).toMatch(/^: otela queued 3rd\n\ndata: .*no_capacity/);
  const [broken, silent] = [new FakeHost(), new FakeHost()];
  for (const one of [broken, silent]) one.add(entry('a'), 'overloaded');
  broken.positionInQueue = () => Promise.reject(new Error('moved'));
  expect(await waited(broken)).toMatch(/^: otela queued\n\n/);
  silent.positionInQueue = () => new Promise(() => {});
  expect(await waited(silent, 1_000)).toMatch(/^: otela queued\n\n/);
});

test('a stream that waits for a model to load says how far it is', async () => {
  const host = new FakeHost();
  const at = (ms: number) => new Date(host.clock.now() + ms).toISOString();
  const models = [{ id: 'm', state: 'loading' as const }];
  const before = { state: 'LEFT' as const, joined_at: at(-600_000), serving_since: at(-560_000) };
  host.add(entry('a', { ...before, models: [{ id: 'm', state: 'ready' }] }), 'gone');
  host.add(entry('b', { state: 'JOIN', models, joined_at: at(-5_000) }), 'gone');
  expect(await waited(host)).toMatch(/^: otela loading 50%\n\ndata: .*no_capacity/);
});

test('a reservation is released once: unused where no engine answers, used when the stream is over', async () => {
  const released: RequestResult[] = [];
  const reservation = {
    headers: { 'x-limit': '1' },
    concurrent: true,
    release: (end: RequestResult) => released.push(end),
  };
  const host = new FakeHost();
  host.reservation = reservation;
  host.add(entry('a'), 'first_byte_timeout');
  await handleRequest(requestOf({ whole: STREAM }), host);
  const refused = { attempts: 0, isComplete: false };
  expect(released).toEqual([refused]);
  host.scripts.set('a', ['data: [DONE]\n\n', 'data: 2\n\n']);
  const response = await handleRequest(requestOf({ whole: STREAM }), host);
  expect(response.headers['x-limit']).toBe('1');
  expect(released).toEqual([refused]);
  await textOf(response);
  expect(released).toEqual([refused, { attempts: 1, isComplete: true }]);
});

test.each([
  ['overloaded', 0],
  ['not_accepted', 0],
  ['engine_closed', 1],
  ['first_byte_timeout', 1],
] as const)('an attempt that ended as %s counts %i times as one whose node will report', async (failure, count) => {
  const host = new FakeHost();
  host.add(entry('a'), failure);
  await handleRequest(requestOf({ whole: STREAM }), host);
  expect(host.engineAttempts()).toBe(count);
});

test('a client that leaves in mid-stream cancels the engine’s work', async () => {
  const host = new FakeHost();
  host.add(entry('a'), ['data: 1\n\n', 'data: 2\n\n']);
  const { body } = await handleRequest(requestOf({ whole: STREAM }), host);
  if (typeof body !== 'function') throw new Error('the body is whole');
  const gone = () => {
    throw new Error('the client left');
  };
  await body({ write: gone, end: gone, abort: () => {} });
  await settle();
  expect(host.log).toContain('cancelled');
  expect(host.log).toContain('left');
});
