/** The state of a connection after a request on it failed: an SDK sends its next request there. */
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, expect, it } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll } from '../support/processes.ts';

const MODEL = 'org/closes';
afterAll(endAll);

/** An engine that closes the connection as soon as it has a request's head. */
async function closingEngine(): Promise<string> {
  const engine = createServer((message, response) => {
    if (message.method === 'GET')
      response.end(JSON.stringify({ object: 'list', data: [{ id: MODEL, object: 'model' }] }));
    else message.socket.destroy();
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => engine.once('listening', resolve));
  atEnd(() => void engine.close());
  return `http://127.0.0.1:${(engine.address() as AddressInfo).port}`;
}

it('carries the next request where the one before was given up in the middle of its body', async () => {
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  await startAgent({ gateways: [gateway.url], token, engineUrl: await closingEngine() });
  await gateway.serving(1);
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  atEnd(() => agent.destroy());
  const ask = (letters: number, headers: Record<string, string>) =>
    new Promise<{ status: number | undefined; reused: boolean }>((resolve, reject) => {
      const body = JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'x'.repeat(letters) }] });
      const sent = request(`${gateway.url}/v1/chat/completions`, { method: 'POST', agent }, (answer) => {
        answer.resume().once('end', () => resolve({ status: answer.statusCode, reused: sent.reusedSocket }));
      });
      sent.once('error', reject);
      sent.setHeader('authorization', `Bearer ${key}`);
      for (const [name, value] of Object.entries(headers)) sent.setHeader(name, value);
      sent.end(body);
    });
  // A body that is larger than what is kept for another attempt, and than all buffers on its path.
  expect(await ask(20_000_000, { 'x-otela-model': MODEL })).toEqual({ status: 502, reused: false });
  expect(await ask(1, {})).toEqual({ status: 502, reused: true });
});
