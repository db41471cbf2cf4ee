import { expect, test, vi } from 'vitest';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { findEndpoint } from '../../../shared/openai/endpoints.ts';
import { readBody } from '../../../shared/proxy/read-body.ts';
import { FakeHost, type RequestOptions, requestOf } from './fake-host.ts';

const MODEL = '{"model":"m"}';

async function read(options: RequestOptions, host = new FakeHost()) {
  const endpoint = findEndpoint('POST', options.path ?? '/v1/chat/completions');
  if (endpoint === undefined || 'methodNotAllowed' in endpoint) throw new Error('no such endpoint');
  return readBody(requestOf(options), endpoint, host);
}

test('a body that came with its head is parsed at once, without a promise', () => {
  const endpoint = findEndpoint('POST', '/v1/chat/completions');
  if (endpoint === undefined || 'methodNotAllowed' in endpoint) throw new Error('no such endpoint');
  const parsed = readBody(requestOf({ whole: MODEL }), endpoint, new FakeHost());
  expect(parsed).not.toBeInstanceOf(Promise);
  expect(parsed).toMatchObject({ model: 'm', streaming: false });
});

test('no text is made of a body to check it, whole or in pieces', async () => {
  const decoded = vi.spyOn(TextDecoder.prototype, 'decode');
  const body = `{"model":"m","messages":[{"role":"user","content":"${'words and words '.repeat(200)}"}]}`;
  await read({ whole: body });
  await read({ pieces: [body.slice(0, 1_000), body.slice(1_000)] });
  const bytes = decoded.mock.calls.map(([text]) => (text as Uint8Array).byteLength);
  decoded.mockRestore();
  expect(Math.max(0, ...bytes), 'at most the name of the model is decoded').toBeLessThan(10);
});

test('pieces make one body, and what is larger than the limit is 413 by its length or by its bytes', async () => {
  expect(await read({ pieces: ['{"mod', 'el":"m"}'] })).toMatchObject({ model: 'm' });
  await expect(read({ pieces: [], headers: { 'content-length': '5000' } })).rejects.toMatchObject({
    code: 'request_too_large',
  });
  await expect(read({ pieces: ['x'.repeat(5_000)] })).rejects.toMatchObject({ code: 'request_too_large' });
});

test('a body that stalls is 408 after the limit, and not before', async () => {
  const host = new FakeHost();
  let code = '';
  const reading = read({ pieces: ['{"mod', undefined] }, host).catch((error) => {
    code = error.code;
  });
  for (let second = 0; second < 29; second++) await host.clock.advance(1_000);
  expect(code).toBe('');
  await host.clock.advance(1_000);
  await reading;
  expect(code).toBe('request_timeout');
});

test('a compressed body is 415, and so is another type on a multipart endpoint', async () => {
  await expect(read({ whole: MODEL, headers: { 'content-encoding': 'gzip' } })).rejects.toMatchObject({ status: 415 });
  await expect(read({ whole: MODEL, path: '/v1/audio/transcriptions' })).rejects.toMatchObject({ status: 415 });
});

test('with x-otela-model the body is not read before a node is found', async () => {
  const parsed = await read({ pieces: ['not JSON'], headers: { 'x-otela-model': 'm', 'content-length': '8' } });
  expect(parsed).toMatchObject({ model: 'm', unseen: true, body: { kind: 'kept', bytes: new Uint8Array(0) } });
  await parsed.fill?.();
  expect(parsed.body).toMatchObject({ kind: 'kept', bytes: new TextEncoder().encode('not JSON') });
  const large = await read({ pieces: ['x'], headers: { 'x-otela-model': 'm', 'content-length': '5000000' } });
  expect(large.body.kind).toBe('opaque');
});

test('a sealed request outside its time, or to more than 16 nodes, is 400 and says why', async () => {
  const host = new FakeHost();
  const now = Math.floor(host.clock.now() / 1000);
  const to = toBase64url(new Uint8Array(120));
  const sealed = (at: number, until: number, envelopes = [to]) => {
    const stamp = `v=1; n=${toBase64url(new Uint8Array(16))}; at=${at}; until=${until}`;
    const headers = {
      'content-type': 'application/otela-sealed',
      'x-otela-model': 'm',
      'x-otela-seal': stamp,
      'x-otela-seal-to': envelopes.join(', '),
    };
    return read({ whole: 'sealed', headers }, host);
  };
  expect((await sealed(now + 120, now + 720)).sealed?.envelopes.size).toBe(1);
  await expect(sealed(now + 121, now + 721)).rejects.toThrow("121 s ahead of the receiver's clock");
  await expect(sealed(now - 600, now)).rejects.toThrow('expired 0 s ago');
  await expect(sealed(now, now + 1_201)).rejects.toThrow('must be valid for at most 1200 s');
  await expect(
    sealed(
      now,
      now + 600,
      Array.from({ length: 17 }, () => to),
    ),
  ).rejects.toMatchObject({ status: 400 });
});

test('release forgets a body that no other attempt needs', async () => {
  const parsed = await read({ whole: MODEL });
  parsed.release();
  expect(parsed.body).toMatchObject({ bytes: new Uint8Array(0) });
});
