import { expect, test } from 'vitest';
import { filter } from '../../../shared/proxy/filter.ts';
import { handle } from '../../../shared/proxy/handle.ts';
import { parseRequirements } from '../../../shared/routing/requirements.ts';
import { entry } from '../routing/support.ts';
import { FakeHost, requestOf } from './fake-host.ts';

async function codeFor(host: FakeHost, model: string): Promise<string> {
  const { body } = await handle(requestOf({ whole: JSON.stringify({ model }) }), host);
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
  const info = { requestId: 'r', name: 'n', startedAt: 0 };
  filter(route, info, host);
  expect(info).toMatchObject({ known: true });
});

test('what no node has is refused at once, though nodes serve the model and requests may wait', async () => {
  const host = new FakeHost();
  host.add(entry('a'), ['data: [DONE]\n\n']);
  const resolve = host.resolve.bind(host);
  host.resolve = (...args) => {
    const route = resolve(...args);
    return { ...route, waitMs: 60_000, demand: { ...route.demand, require: parseRequirements('gpu=H100') } };
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
