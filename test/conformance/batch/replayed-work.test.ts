/** An agent's requests for work of batches, replayed by an eavesdropper. */
import { connect } from 'node:net';
import { afterAll, expect, it } from 'vitest';
import * as z from 'zod';
import { startAgent } from '../../support/agent.ts';
import { startEngine } from '../../support/engine.ts';
import { Gateway } from '../../support/gateway.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';
import { chatBody, MODEL } from '../../support/test-cluster.ts';
import { wiretap } from '../../support/wiretap.ts';

/** Longer than the lines that a lease carries, so the agent asks for them. */
const LONG_LINE_BYTES = 100_000;

afterAll(endAll);

/** The first line of the response, and its body. */
function sentAgain(url: string, bytes: Buffer): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    let text = '';
    const socket = connect(Number(port), hostname, () => socket.write(bytes));
    socket.on('error', reject);
    socket.on('data', (piece) => {
      text += piece.toString('latin1');
      if (/"code":"[a-z_]+"\}\}/.test(text)) socket.destroy();
    });
    socket.on('close', () => resolve(text));
    socket.setTimeout(10_000, () => socket.destroy());
  });
}

it('each of a node’s requests for work is taken once: none that was read on its way does anything when it is sent again', async () => {
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const tap = await wiretap(gateway.url);
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  await startAgent({ gateways: [tap.url], token, engineUrl: engine.url });
  await gateway.serving(1);
  const authorization = `Bearer ${key}`;
  const messages = [{ role: 'user', content: 'x'.repeat(LONG_LINE_BYTES) }];
  const line = {
    custom_id: 'a',
    method: 'POST',
    url: '/v1/chat/completions',
    body: chatBody({ tokens: 1 }, { messages }),
  };
  const form = new FormData();
  form.set('purpose', 'batch');
  form.set('file', new Blob([`${JSON.stringify(line)}\n`]), 'in.jsonl');
  const idSchema = z.looseObject({ id: z.string() });
  const post = async (path: string, body: FormData | string) => {
    const headers =
      typeof body === 'string' ? { authorization, 'content-type': 'application/json' } : { authorization };
    const answer = await fetch(`${gateway.url}${path}`, { method: 'POST', headers, body });
    return idSchema.parse(await answer.json()).id;
  };
  const input = await post('/v1/files', form);
  const asked = { input_file_id: input, endpoint: '/v1/chat/completions', completion_window: '24h' };
  const batch = await post('/v1/batches', JSON.stringify(asked));
  await eventually('the batch', 60_000, async () => {
    const answer = await fetch(`${gateway.url}/v1/batches/${batch}`, { headers: { authorization } });
    return z.looseObject({ status: z.string() }).parse(await answer.json()).status === 'completed' || undefined;
  });
  for (const verb of ['lease', 'chunk', 'commit']) {
    const request = tap.requests(`POST /agent/batch/${verb} `).at(-1);
    if (request === undefined) throw new Error(`no ${verb} was heard`);
    const answer = await sentAgain(gateway.url, request);
    expect([verb, answer]).toEqual([verb, expect.stringMatching(/^HTTP\/1\.1 409 [\s\S]*already received/)]);
  }
});
