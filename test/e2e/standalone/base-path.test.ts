/** The gateway below a path, by plain requests. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Gateway } from '../../support/gateway.ts';
import { startPathProxy } from '../../support/path-proxy.ts';
import { endAll, Managed } from '../../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

const PATH = '/node/gpu-1.cluster/8787';
let below: Gateway;
let root: Gateway;
beforeAll(async () => {
  [below, root] = await Promise.all([Gateway.start({ args: ['--base-path', `${PATH}/`] }), Gateway.start()]);
});
afterAll(endAll);

const get = (url: string, headers: Record<string, string> = {}) => fetch(url, { headers, redirect: 'manual' });
const loginCookie = async (gateway: Gateway, url: string, headers: Record<string, string> = {}) => {
  const answer = await fetch(new URL('login/key', url), {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'sec-fetch-site': 'same-origin', ...headers },
    body: JSON.stringify({ key: gateway.adminKey }),
  });
  expect(answer.status).toBe(204);
  return answer.headers.get('set-cookie') ?? '';
};

describe.each(['kept', 'removed', 'named'] as const)('with --base-path behind a proxy, path %s', (mode) => {
  it('the API, redirects and cookies are below the path', async () => {
    const { url } = await startPathProxy({ to: below.url, path: PATH, mode });
    const key = { authorization: `Bearer ${below.adminKey}` };
    expect((await get(`${url}v1/models`, key)).status).toBe(200);
    expect((await get(`${url}admin/settings`, key)).status).toBe(200);
    expect((await get(`${url}v1/models`)).status).toBe(401);
    const device = await get(`${url}device`);
    expect([device.status, device.headers.get('location')]).toEqual([302, `${PATH}/#/keys?code=`]);
    expect(await loginCookie(below, url)).toContain(`Path=${PATH}/;`);
    const chat = await fetch(`${url}v1/chat/completions`, {
      method: 'POST',
      headers: { ...key, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'none', messages: [] }),
    });
    expect(chat.status).toBe(404);
  });
});

it('without the slash at its end, the path redirects to the page', async () => {
  const answer = await get(`${below.url}${PATH}?a=b`);
  expect([answer.status, answer.headers.get('location')]).toEqual([308, `${PATH}/?a=b`]);
  expect((await get(`${below.url}${PATH}x/v1/models`)).status).toBe(404);
});

it('a gateway at the root takes the path from the proxy', async () => {
  const { url } = await startPathProxy({ to: root.url, path: PATH, mode: 'named' });
  expect(await loginCookie(root, url)).toContain(`Path=${PATH}/;`);
  expect(await loginCookie(root, `${root.url}/`)).toContain('Path=/;');
});

it.each([
  '//evil.example',
  '/a/../b',
  '/..',
  'https://evil.example',
  '/a b',
  '/a;Domain=example.org',
  '/a?b',
  '/%2e%2e',
  `/${'a'.repeat(2_000)}`,
  '/a, /b',
])('a prefix %s is ignored', async (prefix) => {
  expect(await loginCookie(root, `${root.url}/`, { 'x-forwarded-prefix': prefix })).toContain('Path=/;');
  expect((await get(`${root.url}/device`, { 'x-forwarded-prefix': prefix })).headers.get('location')).toBe(
    '/#/keys?code=',
  );
});

it.each(['otela', '/a b', '/a/../b', '//a', '/'])('refuses --base-path %s', async (path) => {
  const gateway = new Managed([NODE, GATEWAY_MAIN, 'serve', '--base-path', path]);
  expect((await gateway.exited).code).toBe(2);
  expect(gateway.output).toContain(`--base-path ${path} is not a path such as /otela`);
});
