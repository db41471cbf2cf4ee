import { env } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { ADMIN_ROUTES } from '../../../gateway/admin/admin-routes.ts';
import { app } from '../../../gateway/app.ts';
import { BATCH_ROUTES } from '../../../gateway/batch/batch-openapi.ts';
import { FILE_ROUTES } from '../../../gateway/files/file-openapi.ts';
import { ENDPOINTS, REALTIME } from '../../../shared/openai/endpoints.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock } from './support.ts';

const described = z.looseObject({
  openapi: z.literal('3.1.0'),
  paths: z.record(
    z.string(),
    z.record(
      z.string(),
      z.looseObject({
        operationId: z.string(),
        tags: z.array(z.string()),
        responses: z.record(z.string(), z.unknown()),
        parameters: z.array(
          z.looseObject({
            name: z.string(),
            in: z.string(),
            schema: z.looseObject({ pattern: z.string().optional() }),
          }),
        ),
        security: z.array(z.unknown()).optional(),
      }),
    ),
  ),
});

test('every route that is served is described, once and with its parameters, to anybody', async () => {
  const { paths } = await good(knock('GET', '/openapi.json'), described);
  for (const { method, path } of ADMIN_ROUTES) {
    const open = `/admin${path.replace(/:(\w+)(\{[^}]*\})?/g, '{$1}')}`;
    const operation = paths[open]?.[method];
    expect(operation, `${method} ${open}`).toBeDefined();
    const named = operation?.parameters.filter((one) => one.in === 'path').map(({ name }) => name);
    expect(named).toEqual([...open.matchAll(/\{(\w+)\}/g)].map(([, name]) => name));
  }
  for (const { path } of ENDPOINTS) expect(paths[path]?.post, path).toBeDefined();
  for (const { method, path } of [...FILE_ROUTES, ...BATCH_ROUTES])
    expect(paths[path]?.[method]?.tags, path).toEqual([path.split('/')[2]]);
  const ids = Object.values(paths).flatMap((one) => Object.values(one).map(({ operationId }) => operationId));
  expect(new Set(ids).size).toBe(ids.length);
});

test('each request outside the admin REST says of what form its answer is, and its body', async () => {
  const { paths } = await good(knock('GET', '/openapi.json'), described);
  const answer = z.looseObject({ content: z.record(z.string(), z.unknown()) });
  for (const [path, methods] of Object.entries(paths))
    for (const [method, { responses }] of Object.entries(methods)) {
      if (path.startsWith('/admin/')) continue;
      // A WebSocket has messages, which OpenAPI does not describe.
      if (path === REALTIME.path) {
        expect(Object.keys(responses)).toEqual(['101', 'default']);
        continue;
      }
      expect(Object.keys(answer.parse(responses['200']).content), `${method} ${path}`).not.toEqual([]);
    }
  const form = JSON.stringify(paths['/v1/audio/transcriptions']?.post);
  expect(form).toContain('"file":{"type":"string","format":"binary"');
});

test('it tells the status of each answer, and what may be sent again', async () => {
  const { paths } = await good(knock('GET', '/openapi.json'), described);
  const statuses = (method: string, path: string) => Object.keys(paths[`/admin${path}`]?.[method]?.responses ?? {});
  const answers: [string, string, ...string[]][] = [
    ['post', '/keys', '200', '201'],
    ['post', '/keys/{id}/rotate', '200', '201'],
    ['patch', '/keys/{id}', '200'],
    ['post', '/nodes/{session}/drain', '202'],
    ['get', '/nodes/{session}/deployment', '200'],
    ['put', '/nodes/{session}/deployment', '202'],
    ['delete', '/nodes/{session}/deployment', '202'],
    ['post', '/replicas/load', '202'],
  ];
  for (const [method, path, ...codes] of answers) expect(statuses(method, path), path).toEqual([...codes, 'default']);
  const rotation = paths['/admin/keys/{id}/rotate']?.post?.parameters.map(({ name }) => name);
  expect(rotation).toContain('idempotency-key');
});

test('what schemas say is what is parsed: sessions, policies, windows, blank names; health is open to everybody', async () => {
  const text = await (await knock('GET', '/openapi.json')).text();
  const { paths } = described.parse(JSON.parse(text));
  const param = (path: string, name: string) => paths[path]?.get?.parameters.find((one) => one.name === name)?.schema;
  expect(param('/admin/nodes/{session}', 'session')).toMatchObject({ pattern: '^[a-z2-7]{26}$' });
  expect(text).toContain('"policy":{"type":"string","enum":["random","round-robin",');
  expect([paths['/healthz']?.get?.security, paths['/readyz']?.get?.security]).toEqual([[], []]);
  const { pattern = '' } = param('/admin/workload', 'window') ?? {};
  const window = new RegExp(pattern);
  for (const good of ['1s', '604800s', '10080m', '168h', '7d', '45m']) expect(window.test(good), good).toBe(true);
  for (const bad of ['0m', '604801s', '10081m', '169h', '8d', '1w', '']) expect(window.test(bad), bad).toBe(false);
});

test('each route of files, uploads and batches that the app has is described, and no other', async () => {
  const { paths } = await good(knock('GET', '/openapi.json'), described);
  const isResource = (path: string) => /^\/v1\/(files|uploads|batches)/.test(path);
  const served = app.routes
    .filter(({ path, method }) => isResource(path) && method !== 'ALL')
    .map(({ method, path }) => `${method.toLowerCase()} ${path.replace(/:(\w+)/g, '{$1}')}`);
  const told = Object.entries(paths).flatMap(([path, methods]) =>
    isResource(path) ? Object.keys(methods).map((method) => `${method} ${path}`) : [],
  );
  expect(told.sort()).toEqual([...new Set(served)].sort());
});

test.each([
  '/healthz',
  '/readyz',
  '/metrics',
  '/v1/registry/nodes',
  '/admin/nodes/history',
  '/openapi.json',
  '/docs',
  '/llms.txt',
])('DELETE %s is 405, and says which methods there are', async (path) => {
  const response = await knock('DELETE', path, { key: (await seedKey('operator')).key });
  expect([response.status, response.headers.get('allow')?.startsWith('GET')]).toEqual([405, true]);
});

test('no part of it points to something that is not there, and no internal reference is left open', async () => {
  const text = await (await knock('GET', '/openapi.json')).text();
  const refs = new Set([...text.matchAll(/"\$ref":"([^"]+)"/g)].map(([, ref]) => ref));
  expect([...refs]).toEqual(['#/components/responses/error']);
});

test('a gateway without a dashboard shows them without a script and without anything from elsewhere', async () => {
  const { ASSETS: _, ...bare } = env;
  const response = await app.request('/docs', {}, bare);
  const html = await response.text();
  expect(response.headers.get('content-security-policy')).toContain("default-src 'none'");
  expect(html).toContain('/admin/join-tokens');
  expect(html).toContain('/v1/chat/completions');
  expect(html).not.toMatch(/<script|src=|https?:/);
});

test('/llms.txt names the address, all endpoints that create something, and only links that work', async () => {
  const response = await knock('GET', '/llms.txt', { headers: { 'x-forwarded-prefix': '/rnode/a/1' } });
  expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/plain; charset=UTF-8']);
  const text = await response.text();
  const [, origin = ''] = /SDKs of Anthropic (\S+)\.\n/.exec(text) ?? [];
  expect(new URL(origin).pathname).toBe('/rnode/a/1');
  for (const { path, method } of ENDPOINTS) if (method === 'POST') expect(text).toContain(`- POST ${path}\n`);
  const links = [...text.matchAll(/\]\((\S+?)\)/g)].map(([, url = '']) => url);
  expect(links).toHaveLength(2);
  for (const url of links)
    expect((await knock('GET', new URL(url).pathname.replace('/rnode/a/1', ''))).status, url).toBe(200);
});
