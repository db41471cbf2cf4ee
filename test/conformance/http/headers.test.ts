/** Headers pass by an allow-list, in both directions. */
import { writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { raw } from '../../support/raw.ts';
import { chatBody, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster({
    engine: {
      apiKey: 'the-engines-own-key',
      behaviour: {
        headers: { server: 'uvicorn', 'set-cookie': 'a=b', 'x-internal-host': 'nid001234', 'x-powered-by': 'x' },
      },
    },
    agentArgs: ['--engine-key-file', await keyFile()],
  });
});
afterAll(endAll);

const ANY_ID = expect.stringMatching(/^[\w-]{8,}$/);

async function keyFile(): Promise<string> {
  const path = `${await temporaryDirectory()}/engine.key`;
  await writeFile(path, 'the-engines-own-key\n', { mode: 0o600 });
  return path;
}

it('a header of the engine comes with the bytes that it had, UTF-8 and Latin-1', async () => {
  // Not `close`, because the runtime's own HTTP handles that.
  const headers = { authorization: `Bearer ${cluster.key}`, connection: 'keep-alive' };
  const typeOf = async (name: string, type: string, body: object) => {
    cluster.engine.control({ headers: { 'content-type': `${type}; name="${name}"` } }, 1);
    const url = `${cluster.gateway.url}/v1/chat/completions`;
    return (await raw(url, { headers, body: JSON.stringify(body) })).headers['content-type'];
  };
  // Node reads a letter of a header as a byte, and writes it as a byte if the length is known; in the mock engine's
  // streams it writes UTF-8.
  const utf8 = (text: string) => Buffer.from(text).toString('latin1');
  for (const name of [utf8('naïve – ж😀'), 'naïve ÿ\x80']) {
    for (const tokens of [3, 60_000]) {
      const type = await typeOf(name, 'application/json', chatBody({ tokens }));
      expect(type).toBe(`application/json; name="${name}"`);
    }
  }
  const stream = chatBody({ tokens: 20, tokensPerSecond: 100 }, { stream: true });
  expect(await typeOf('naïve', 'text/event-stream', stream)).toBe(`text/event-stream; name="${utf8('naïve')}"`);
});

it('the client’s key never reaches the engine; the agent brings the engine’s own', async () => {
  const response = await cluster.ask('/v1/chat/completions', chatBody());
  expect(response.status).toBe(200);
  const seen = cluster.engine.requests.at(-1);
  expect(seen?.headers.authorization).toBe('Bearer the-engines-own-key');
  expect(JSON.stringify(seen?.headers)).not.toContain(cluster.key);
});

it('no secret and no private header of the client reaches the engine, in any spelling', async () => {
  const secret = {
    'x-api-key': cluster.key,
    'api-key': cluster.key,
    cookie: 'session=1',
    'x-forwarded-for': '10.0.0.1',
    forwarded: 'for=10.0.0.1',
  };
  await cluster.ask('/v1/chat/completions', chatBody(), {
    headers: { ...secret, 'x-real-ip': '10.0.0.1', 'cf-connecting-ip': '10.0.0.1' },
  });
  const seen = cluster.engine.requests.at(-1)?.headers ?? {};
  for (const name of [...Object.keys(secret), 'x-real-ip', 'cf-connecting-ip'])
    expect(seen, name).not.toHaveProperty(name);
  expect(JSON.stringify(seen)).not.toContain(cluster.key);
});

it('the content type reaches the engine as it was', async () => {
  await cluster.ask('/v1/chat/completions', chatBody(), {
    headers: { 'content-type': 'application/json; charset=utf-8' },
  });
  expect(cluster.engine.requests.at(-1)?.headers['content-type']).toBe('application/json; charset=utf-8');
});

it('the engine is asked to compress nothing, whatever the client could read', async () => {
  await cluster.ask('/v1/chat/completions', chatBody(), { headers: { 'accept-encoding': 'gzip, br' } });
  expect(cluster.engine.requests.at(-1)?.headers['accept-encoding']).toBe('identity');
});

it('a well formed x-request-id is kept, reaches the engine and comes back', async () => {
  const response = await cluster.ask('/v1/chat/completions', chatBody(), {
    headers: { 'x-request-id': 'my-request_1.2' },
  });
  expect(response.headers.get('x-request-id')).toBe('my-request_1.2');
  expect(cluster.engine.requests.at(-1)?.headers['x-request-id']).toBe('my-request_1.2');
});

it.each(['', 'with spaces in it', 'x'.repeat(300), 'a\tb', '"quoted"'])(
  'an ill-formed x-request-id (%j) is replaced by one of ours',
  async (id) => {
    const response = await cluster.ask('/v1/chat/completions', chatBody(), { headers: { 'x-request-id': id } });
    const given = response.headers.get('x-request-id') ?? '';
    expect(given).toMatch(/^[\w.-]{8,128}$/);
    expect(given).not.toBe(id);
    expect(cluster.engine.requests.at(-1)?.headers['x-request-id']).toBe(given);
  },
);

it('requests without an id get different ones, errors too', async () => {
  const ids = new Set<string | null>();
  for (const body of [chatBody(), chatBody(), '{bad', chatBody({}, { model: 'nobody/serves-this' })]) {
    ids.add((await cluster.ask('/v1/chat/completions', body)).headers.get('x-request-id'));
  }
  expect(ids.size).toBe(4);
  expect(ids).not.toContain(null);
});

it('what only reads has an id too, HEAD as well as GET', async () => {
  for (const path of ['/v1/models', '/v1/registry/nodes']) {
    for (const method of ['GET', 'HEAD']) {
      const response = await cluster.ask(path, undefined, { method });
      expect([response.status, response.headers.get('x-request-id')], `${method} ${path}`).toEqual([200, ANY_ID]);
      await response.text();
    }
  }
});

it('the answer tells node, provider and the stages of its way, and hides the engine’s other headers', async () => {
  const response = await cluster.ask('/v1/chat/completions', chatBody());
  const [node] = await cluster.gateway.nodes();
  expect(response.headers.get('x-otela-node')).toBe(node?.session);
  expect(response.headers.get('x-otela-provider')).toBe('lab');
  expect(response.headers.get('x-otela-attempts')).toBe('1');
  for (const stage of ['ingress', 'lookup', 'queue', 'forward', 'return', 'other']) {
    expect(response.headers.get('server-timing')).toMatch(new RegExp(`\\b${stage};dur=[0-9.]+`));
  }
  for (const name of ['set-cookie', 'x-internal-host', 'x-powered-by'])
    expect(response.headers.has(name), name).toBe(false);
  expect(response.headers.get('server') ?? '').not.toContain('uvicorn');
});

it('a stream is told to proxies as one that must not be buffered', async () => {
  const response = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 2 }, { stream: true }));
  expect(response.headers.get('content-type')).toContain('text/event-stream');
  expect(response.headers.get('cache-control')).toContain('no-cache');
  expect(response.headers.get('x-accel-buffering')).toBe('no');
  await response.text();
});

it('an engine’s retry-after passes', async () => {
  cluster.engine.control({ status: 429, headers: { 'retry-after': '7' } }, 1);
  const response = await cluster.ask('/v1/chat/completions', chatBody());
  expect(response.status).toBe(429);
  expect(response.headers.get('retry-after')).toBe('7');
  await response.text();
});

const PAGE = 'https://chat.example.org';

it('a preflight of a page needs no key, at every path below /v1', async () => {
  for (const path of ['/v1/chat/completions', '/v1/messages', '/v1/models', '/v1/files', '/v1/no/such/path']) {
    const headers = {
      origin: PAGE,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'authorization,content-type,x-stainless-lang',
    };
    const answer = await raw(`${cluster.gateway.url}${path}`, { method: 'OPTIONS', headers });
    expect([answer.status, answer.body.length], path).toEqual([204, 0]);
    expect(answer.headers).toMatchObject({
      'access-control-allow-origin': '*',
      'access-control-allow-methods': 'GET, HEAD, POST, DELETE',
      'access-control-allow-headers': 'authorization, *',
      'access-control-max-age': '7200',
      vary: 'origin',
    });
    expect(answer.headers, path).not.toHaveProperty('access-control-allow-credentials');
  }
  const outside = { origin: PAGE, 'access-control-request-method': 'POST' };
  for (const path of ['/admin/keys', '/auth/login', '/agent/admit', '/metrics']) {
    const answer = await raw(`${cluster.gateway.url}${path}`, { method: 'OPTIONS', headers: outside });
    expect(answer.status, path).toBeGreaterThanOrEqual(400);
    expect(JSON.stringify(answer.headers), path).not.toContain('access-control');
  }
});

it('a page with a key reads responses and errors of every kind; with a cookie it reads none', async () => {
  const { url } = cluster.gateway;
  const key = { authorization: `Bearer ${cluster.key}`, 'content-type': 'application/json' };
  const stream = JSON.stringify(chatBody({ tokens: 2 }, { stream: true }));
  const tries: [string, string, Record<string, string>, string?][] = [
    // Fast path on Node, unless `te` makes node:http read the request.
    ['a response', '/v1/chat/completions', { ...key, connection: 'keep-alive' }, JSON.stringify(chatBody())],
    ['a stream', '/v1/chat/completions', { ...key, connection: 'keep-alive' }, stream],
    ['a response that node:http reads', '/v1/chat/completions', { ...key, te: 'trailers' }, JSON.stringify(chatBody())],
    ['an error of the pipeline', '/v1/chat/completions', key, '{'],
    ['a wrong key', '/v1/chat/completions', { 'content-type': 'application/json' }, JSON.stringify(chatBody())],
    ['a list', '/v1/models', key],
    ['the registry', '/v1/registry/nodes', key],
    ['an unknown path', '/v1/v1/models', key],
    ['a refused list', '/v1/models', {}],
    ['files', '/v1/files', key],
  ];
  for (const [what, path, headers, body] of tries) {
    const ask = (more: Record<string, string>) =>
      raw(`${url}${path}`, { headers: { ...headers, ...more }, ...(body !== undefined && { body }) });
    expect((await ask({ origin: PAGE })).headers, what).toMatchObject({
      'access-control-allow-origin': '*',
      'access-control-expose-headers': '*',
      vary: 'origin',
    });
    for (const more of [{}, { origin: PAGE, cookie: 'otela-session=x' }] as Record<string, string>[])
      expect(JSON.stringify((await ask(more)).headers), what).not.toContain('access-control');
  }
});
