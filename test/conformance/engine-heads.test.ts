/** Engines with unusual but valid responses: the gateway passes on everything that HTTP allows. */
import { createServer, type ServerResponse } from 'node:http';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { type RawAnswer, raw } from '../support/raw.ts';

const MODEL = 'unusual';
const READY_MS = 15_000;
const ANSWER = JSON.stringify({ id: 'a', choices: [], usage: { prompt_tokens: 3, completion_tokens: 4 } });
const USAGE = { choices: [], usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 } };
const EVENTS = ['one', 'two'].map((content) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`);

/** The engine's behavior, by the word in the prompt. */
const ANSWERS: Record<string, (response: ServerResponse) => void> = {
  unfinished: (response) =>
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': 5 }).end('{"a":'),
  compressed: (response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' });
    response.end(gzipSync(ANSWER));
  },
  capitals: (response) => {
    response.writeHead(200, { 'content-type': 'Text/Event-Stream; charset=utf-8' });
    for (const event of [...EVENTS, `data: ${JSON.stringify(USAGE)}\n\n`, 'data: [DONE]\n\n']) response.write(event);
    response.end();
  },
};

let gateway: Gateway;
let key: string;
beforeAll(async () => {
  const engine = createServer(async (request, response) => {
    if (request.method === 'GET') return void response.end(JSON.stringify({ data: [{ id: MODEL }] }));
    let body = '';
    for await (const piece of request) body += piece;
    const word = Object.keys(ANSWERS).find((name) => body.includes(name)) ?? '';
    ANSWERS[word]?.(response);
  });
  await new Promise<void>((resolve) => engine.listen(0, '127.0.0.1', resolve));
  atEnd(() => void engine.close());
  const address = engine.address();
  const engineUrl = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
  gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  key = await gateway.createKey();
  await startAgent({ gateways: [gateway.url], token, engineUrl });
  await gateway.serving(1, READY_MS, MODEL);
});
afterAll(endAll);

/** A request with a query takes the runtime's HTTP, a request without one takes the inlet. */
function ask(word: string, query: string, more: object = {}): Promise<RawAnswer> {
  return raw(`${gateway.url}/v1/chat/completions${query}`, {
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: word }], ...more }),
  });
}

it.each(['', '?way=http'])(
  'an answer of the length that it announces is whole, whatever stands in it (%s)',
  async (query) => {
    const { status, body, complete } = await ask('unfinished', query);
    expect([status, body.toString(), complete]).toEqual([200, '{"a":', true]);
  },
);

it.each(['', '?way=http'])('an answer that is compressed says so, and is compressed once (%s)', async (query) => {
  const { status, headers, body } = await ask('compressed', query);
  expect([status, headers['content-encoding']]).toEqual([200, 'gzip']);
  expect(gunzipSync(body).toString()).toBe(ANSWER);
});

it('a stream is one however its type is written: the usage that we asked for is taken out again', async () => {
  const { status, headers, body } = await ask('capitals', '', { stream: true });
  expect([status, headers['content-type']]).toEqual([200, 'Text/Event-Stream; charset=utf-8']);
  expect(body.toString()).toBe(`${EVENTS.join('')}data: [DONE]\n\n`);
});
