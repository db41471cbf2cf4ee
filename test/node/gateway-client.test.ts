/** What a program learns from a gateway that answers, refuses, breaks off or is away. */
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { GatewayClient, GatewayRefusalError, GatewayUnreachableError } from '../../node/gateway-client.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';

let server: Server;
afterEach(() => void server.close());

async function gateway(answer: RequestListener): Promise<string> {
  server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const failureOf = (call: Promise<unknown>) =>
  call.then(
    () => {
      throw new Error('it succeeded');
    },
    (error: unknown) => error,
  );

it('sends the key that is valid now, and JSON', async () => {
  const seen: unknown[] = [];
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const body = await request.toArray();
    seen.push([request.method, request.url, request.headers.authorization, Buffer.concat(body).toString()]);
    response.end('{"data":[]}');
  };
  const url = await gateway((request, response) => neverRejects(answer(request, response)));
  let key = 'sk-1';
  const client = new GatewayClient({ url: `${url}/ignored`, key: () => key });
  expect(await client.get('/v1/models?x=1')).toEqual({ data: [] });
  key = 'sk-2';
  await client.put('/admin/a', { b: 1 });
  expect(seen).toEqual([
    ['GET', '/v1/models?x=1', 'Bearer sk-1', ''],
    ['PUT', '/admin/a', 'Bearer sk-2', '{"b":1}'],
  ]);
});

it.each([
  ['{"error":{"message":"no\\u001b[31m","type":"t","param":null,"code":"c"}}', / answers 409: no \[31m$/, 'c'],
  ['{"error":{"message":"no","code":"c"}}', / answers 409: no$/, undefined],
  ['<html>a proxy</html>', / answers 409: <html>a proxy<\/html>$/, undefined],
  ['{"error":{}}', / answers 409$/, undefined],
  ['', / answers 409$/, undefined],
])('a refusal has its status, the code of a gateway, and the printable part of %s', async (text, message, code) => {
  const url = await gateway((_, response) => void response.writeHead(409).end(text));
  const error = await failureOf(new GatewayClient({ url }).delete('/admin/a'));
  expect(error).toBeInstanceOf(GatewayRefusalError);
  expect(error).toMatchObject({ status: 409, code, message: expect.stringMatching(message) });
});

it('does not follow a redirect with the key', async () => {
  const paths: unknown[] = [];
  const url = await gateway((request, response) => {
    paths.push(request.url);
    response.writeHead(307, { location: '/elsewhere' }).end();
  });
  expect(await failureOf(new GatewayClient({ url, key: 'sk' }).get('/a'))).toBeInstanceOf(GatewayUnreachableError);
  expect(paths).toEqual(['/a']);
});

it.each<[string, RequestListener, RegExp]>([
  ['is too long', (_, response) => void response.end('x'.repeat(101)), /returned more than 100 bytes/],
  ['is not JSON', (_, response) => void response.end('{'), /did not return JSON/],
  [
    'breaks off',
    (_, response) => {
      response.writeHead(200, { 'content-length': '10' }).flushHeaders();
      response.write('{', () => response.destroy());
    },
    /broke off/,
  ],
  ['never comes', () => {}, /does not answer \/a: /],
])('an answer that %s', async (_, answer, message) => {
  const url = await gateway(answer);
  const client = new GatewayClient({ url, maxBytes: 100, timeout: { leastMs: 300, mostMs: 300 } });
  const error = await failureOf(client.get('/a'));
  expect(error).toBeInstanceOf(GatewayUnreachableError);
  expect(error).toMatchObject({ message: expect.stringMatching(message) });
  server.closeAllConnections();
});

it('names the reason why no connection was made', async () => {
  const url = await gateway(() => {});
  await new Promise((resolve) => server.close(resolve));
  const error = await failureOf(new GatewayClient({ url }).get('/a'));
  expect(error).toMatchObject({ message: expect.stringMatching(/does not answer \/a: .*ECONNREFUSED/) });
});
