/** What an engine's answers to single lines are taken for. */
import { createServer } from 'node:http';
import { expect, it, onTestFinished } from 'vitest';
import { LineClient } from '../../../agent/batch/line-client.ts';

it.each([
  ['{"choices":[{"finish_reason":"stop"}]}', 200, { kind: 'answered', status: 200 }],
  ['{"choices":[{"finish_reason":"stop"},{"finish_reason":"abort"}]}', 200, { kind: 'failed' }],
  ['{"choices":null}', 200, { kind: 'answered', status: 200 }],
  ['<html>', 200, { kind: 'failed' }],
  ['{"error":{"message":"no such model"}}', 404, { kind: 'answered', status: 404 }],
])('%s with %i', async (body, status, wanted) => {
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(status).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const client = new LineClient({ origin: `http://127.0.0.1:${port}`, pathPrefix: '' });
  onTestFinished(async () => {
    await client.close();
    server.close();
  });
  const { signal } = new AbortController();
  expect(await client.run('/v1/chat/completions', '{}', 'r', signal)).toMatchObject(wanted);
});
