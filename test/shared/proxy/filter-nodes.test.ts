import { expect, test } from 'vitest';
import { filter } from '../../../shared/proxy/filter-nodes.ts';
import { handleRequest } from '../../../shared/proxy/handle-request.ts';
import type { ModelNodes, NodeIndex } from '../../../shared/routing/node-index.ts';
import { parseRequirements } from '../../../shared/routing/requirements.ts';
import { entry } from '../routing/support.ts';
import { FakeHost, requestOf } from './fake-host.ts';

async function codeFor(host: FakeHost, model: string): Promise<string> {
  const { body } = await handleRequest(requestOf({ whole: JSON.stringify({ model }) }), host);
  return JSON.parse(String(body)).error.code;
}

test('a model that no node served is 404; one that the operator expects is 503', async () => {
  const host = new FakeHost();
  expect(await codeFor(host, 'unheard-of')).toBe('model_not_found');
  expect(await codeFor(host, 'expected')).toBe('no_capacity');
});

test('a model that is served passes, and is known', () => {
  const host = new FakeHost();
  host.add(entry('a'), ['data: [DONE]\n\n']);
  const request = requestOf({ whole: '{"model":"m"}' });
  const parsed = { model: 'm', streaming: false, edits: [], metadata: {}, unseen: false, release: () => {} };
  const route = host.resolve(request, 'key', { ...parsed, body: { kind: 'kept', bytes: new Uint8Array(0) } });
  const info = { clientRequestId: 'r', name: 'n', startedAt: 0 };
  filter(route, info, host);
  expect(info).toMatchObject({ known: true });
});

test('the check of a request reads no list of all sessions, which may have thousands that left', () => {
  const host = new FakeHost();
  for (let n = 0; n < 5; n++) host.add(entry(`left${n}`, { state: 'LEFT', connected: false }), 'gone');
  host.add(entry('a'), ['data: [DONE]\n\n']);
  const route = host.resolve(requestOf({ whole: '{"model":"m"}' }), 'key', {
    ...{ model: 'm', streaming: false, edits: [], metadata: {}, unseen: false, release: () => {} },
    body: { kind: 'kept', bytes: new Uint8Array(0) },
  });
  let reads = 0;
  const listed = new Proxy(host.nodes.model('m') as ModelNodes, {
    get: (nodes, name) => {
      if (name === 'all') reads++;
      const value: unknown = Reflect.get(nodes, name);
      return typeof value === 'function' ? (value.bind(nodes) as unknown) : value;
    },
  });
  const nodes = { model: () => listed } as unknown as NodeIndex;
  filter({ ...route, nodes }, { clientRequestId: 'r', name: 'n', startedAt: 0 }, host);
  expect(reads).toBe(0);
});

test('what no node has is refused at once, though nodes serve the model and requests may wait', async () => {
  const host = new FakeHost();
  host.add(entry('a'), ['data: [DONE]\n\n']);
  const resolve = host.resolve.bind(host);
  host.resolve = (...args) => {
    const route = resolve(...args);
    return {
      ...route,
      waitMs: 60_000,
      demand: { require: parseRequirements('gpu=H100'), prefer: [], words: 'gpu=H100' },
    };
  };
  expect(await codeFor(host, 'm')).toBe('requirement_not_met');
});

test('without trust nothing else is said', async () => {
  const host = new FakeHost();
  const resolve = host.resolve.bind(host);
  host.resolve = (...args) => ({
    ...resolve(...args),
    requireTrust: () => {
      throw new Error('no trust');
    },
  });
  expect(await codeFor(host, 'unheard-of')).toBe('internal_error');
});

test('a model whose last node left long ago is not waited for, one that left lately or is expected is', async () => {
  const host = new FakeHost();
  host.waitMs = 60_000;
  host.waitForTurn = async () => ({ kind: 'late' });
  const left = (session: string, agoMs: number, more: object = {}) => {
    const updated_at = new Date(host.clock.now() - agoMs).toISOString();
    host.add(entry(session, { state: 'LEFT', connected: false, updated_at, ...more }), 'gone');
  };
  const ask = async (model: string) => {
    const { headers, body } = await handleRequest(requestOf({ whole: JSON.stringify({ model }) }), host);
    const { code, message } = JSON.parse(String(body)).error;
    expect([code, headers['x-should-retry']]).toEqual(['no_capacity', 'false']);
    return message;
  };
  const waited = 'became free within 60 s';
  left('a', 7_200_000);
  left('b', 601_000);
  expect(await ask('m')).toBe("The last node that served 'm' left 10 min ago, and none is being started.");
  left('c', 599_000);
  expect(await ask('m')).toContain(waited);
  left('d', 7_200_000, { models: [{ id: 'expected', state: 'ready' }] });
  expect(await ask('expected')).toContain(waited);
  // A node that drains, or that is currently not visible, may return.
  left('e', 7_200_000, { models: [{ id: 'half', state: 'ready' }], state: 'DOWN' });
  expect(await ask('half')).toContain(waited);
  // If no request waits, the message does not say how long ago the node left.
  host.waitMs = 0;
  left('f', 7_200_000, { models: [{ id: 'old', state: 'ready' }] });
  const { body } = await handleRequest(requestOf({ whole: '{"model":"old"}' }), host);
  expect(JSON.parse(String(body)).error.message).not.toContain('left');
});

test('a request waits for a sleeping engine as for a free node, and is refused if the wake takes longer', async () => {
  const asked: string[] = [];
  const answerOf = async (waitMs: number, readyInMs: number | undefined, startWaitMs?: number) => {
    const host = new FakeHost();
    host.add(entry('a', { models: [{ id: 'm', state: 'asleep' }] }), 'gone');
    const resolve = host.resolve.bind(host);
    const cold = {
      find: (model: string) => ({ model, state: 'asleep' as const, readyInMs, mayStart: true }),
      ask: (model: string) => asked.push(model),
    };
    host.resolve = (...args) => ({ ...resolve(...args), waitMs, startWaitMs, cold });
    const route = host.resolve(requestOf({ whole: '{"model":"m"}' }), 'key', {
      ...{ model: 'm', streaming: false, edits: [], metadata: {}, unseen: false, release: () => {} },
      body: { kind: 'kept', bytes: new Uint8Array(0) },
    });
    return filter(route, { clientRequestId: 'r', name: 'n', startedAt: 0 }, host);
  };
  expect(await answerOf(10_000, 3_000)).toBe(10_000);
  expect(await answerOf(10_000, undefined)).toBe(10_000);
  expect(await answerOf(10_000, 30_000, 60_000)).toBe(60_000);
  expect(asked).toEqual([]); // it is woken when the request waits, which its limits may forbid
  const refused = { code: 'model_starting', message: expect.stringContaining('its engine sleeps and is being woken') };
  await expect(answerOf(10_000, 30_000)).rejects.toMatchObject(refused);
  await expect(answerOf(0, 1_000)).rejects.toMatchObject(refused);
  await expect(answerOf(10_000, 1_000, 0)).rejects.toMatchObject(refused);
  expect(asked).toEqual(['m', 'm', 'm']);
});
