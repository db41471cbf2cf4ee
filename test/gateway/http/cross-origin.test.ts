import { expect, it } from 'vitest';
import { crossOriginHeaders, preflightResponse } from '../../../gateway/http/cross-origin.ts';

const PAGE = 'https://chat.example.org';
const KEY = { authorization: 'Bearer sk-otela-any' };
const request = (headers: Record<string, string>, method = 'POST') => ({ method, headers: new Headers(headers) });
const preflight = (CORS_ORIGINS: string | undefined, origin: string) => {
  const asked = request({ origin, 'access-control-request-method': 'POST' }, 'OPTIONS');
  return preflightResponse(CORS_ORIGINS === undefined ? {} : { CORS_ORIGINS }, asked);
};

it.each([undefined, '', ' ', '*'])('CORS_ORIGINS=%j: a page of any origin may read the response to its key', (text) => {
  const env = text === undefined ? {} : { CORS_ORIGINS: text };
  for (const headers of [KEY, { 'x-api-key': 'sk-otela-any' }]) {
    expect(crossOriginHeaders(env, request({ origin: PAGE, ...headers }), 200)).toEqual({
      'access-control-allow-origin': '*',
      'access-control-expose-headers': '*',
      vary: 'origin',
    });
  }
  expect(preflight(text, 'null')?.headers.get('access-control-allow-origin')).toBe('*');
});

it('a listed origin is allowed by its name, and no similar one', () => {
  const env = { CORS_ORIGINS: `https://a.example.org, ${PAGE},vscode-webview://abc` };
  const allowed = (origin: string) =>
    crossOriginHeaders(env, request({ origin, ...KEY }), 200)['access-control-allow-origin'];
  for (const origin of [PAGE, 'vscode-webview://abc']) {
    expect(allowed(origin)).toBe(origin);
    expect(preflight(env.CORS_ORIGINS, origin)?.headers.get('access-control-allow-origin')).toBe(origin);
  }
  const similar = [
    'null',
    '*',
    '',
    'http://chat.example.org',
    `${PAGE}:444`,
    `${PAGE}.evil.example`,
    `${PAGE}/`,
    `https://evil.example, ${PAGE}`,
    'https://example.org',
  ];
  for (const origin of similar) {
    expect(allowed(origin), origin).toBeUndefined();
    expect(() => preflight(env.CORS_ORIGINS, origin), origin).toThrow('CORS_ORIGINS');
  }
});

it('off, or a value that cannot be read, allows no page', () => {
  for (const text of ['off', 'https://*', 'null', `${PAGE}/`]) {
    expect(crossOriginHeaders({ CORS_ORIGINS: text }, request({ origin: PAGE, ...KEY }), 200), text).toEqual({});
    expect(() => preflight(text, PAGE), text).toThrow('CORS_ORIGINS');
  }
});

it('a request with a cookie, or a success without a key, gives a page nothing; an error without a key is readable', () => {
  for (const CORS_ORIGINS of ['*', PAGE]) {
    const cookie = { origin: PAGE, cookie: 'otela-session=key.A.B' };
    expect(crossOriginHeaders({ CORS_ORIGINS }, request(cookie), 200)).toEqual({});
    expect(crossOriginHeaders({ CORS_ORIGINS }, request({ ...cookie, ...KEY }), 200)).toEqual({});
    expect(crossOriginHeaders({ CORS_ORIGINS }, request({ origin: PAGE }), 200)).toEqual({});
    const readable = crossOriginHeaders({ CORS_ORIGINS }, request({ origin: PAGE }), 401);
    expect(readable).toHaveProperty('access-control-allow-origin', CORS_ORIGINS);
  }
});

it('only a preflight is one', () => {
  expect(preflightResponse({}, request({ origin: PAGE }, 'OPTIONS'))).toBeUndefined();
  expect(preflightResponse({}, request({ 'access-control-request-method': 'POST' }, 'OPTIONS'))).toBeUndefined();
  expect(
    preflightResponse({}, request({ origin: PAGE, 'access-control-request-method': 'GET' }, 'GET')),
  ).toBeUndefined();
});
