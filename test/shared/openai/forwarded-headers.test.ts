import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { headersToClient } from '../../../shared/openai/forwarded-headers.ts';
import { TRANSLATED_HEADER } from '../../../shared/openai/translation/translation.ts';

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** Listens, and resolves with the server's URL. */
async function served(server: Server): Promise<string> {
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

it('an engine’s redirect does not lead a client with its x-api-key to where a provider likes', async () => {
  const stolen: unknown[] = [];
  const elsewhere = await served(
    createServer((request, response) => {
      stolen.push(request.headers['x-api-key']);
      response.end();
    }),
  );
  const gateway = await served(
    createServer((_, response) => response.writeHead(307, headersToClient([['location', elsewhere]])).end()),
  );
  const { status } = await fetch(gateway, { method: 'POST', headers: { 'x-api-key': 'secret' }, body: 'a prompt' });
  expect([status, stolen]).toEqual([307, []]);
});

it('cookies, and headers with what no header may hold, stay behind', () => {
  const engine = [
    ['set-cookie', 'a=b'],
    ['retry-after', '1\r\nset-cookie: a=b'],
    ['content-type', 'application/json'],
  ] as const;
  expect(headersToClient(engine)).toEqual({ 'content-type': 'application/json' });
});

it('an agent’s mark of a translated answer reaches the client', () => {
  const [name, value] = TRANSLATED_HEADER;
  expect(headersToClient([TRANSLATED_HEADER, ['content-type', 'application/json']])[name]).toBe(value);
});
