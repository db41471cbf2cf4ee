/** `otela chat` with a mock gateway. */
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline/promises';
import { PassThrough, Readable } from 'node:stream';
import { afterAll, beforeEach, expect, it } from 'vitest';
import { chatCommand } from '../../../clients/otela/chat-command.ts';
import { UnreachableError } from '../../../clients/otela/fetch-or-explain.ts';
import { UsageError } from '../../../shared/command-line/index.ts';
import { atEnd, endAll } from '../../support/processes.ts';

afterAll(endAll);

interface Asked {
  headers: Record<string, unknown>;
  body: { model: string; messages: { role: string; content: string }[]; stream: boolean };
}

const data = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;
const piece = (content: string) => data({ choices: [{ index: 0, delta: { content } }] });
const DONE = 'data: [DONE]\n\n';

let gateway: string;
let models: string[];
let asked: Asked[];
/** Answers by the number of the question. */
let answer: (response: ServerResponse, n: number) => void;

beforeEach(async () => {
  models = ['org/a'];
  asked = [];
  answer = (response, n) => response.end(piece(`answer ${n}`) + DONE);
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on('end', () => {
      if (request.url?.startsWith('/v1/models'))
        return response.end(JSON.stringify({ data: models.map((id) => ({ id, state: 'ready' })) }));
      asked.push({ headers: request.headers, body: JSON.parse(body) as Asked['body'] });
      answer(response, asked.length);
    });
  }).listen(0, '127.0.0.1');
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise((resolve) => server.once('listening', resolve));
  gateway = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

async function chat(question: string, { stdin = '', tty = true, model, system }: Partial<Terminal> = {}) {
  const input: Readable & { isTTY?: boolean } = tty ? new PassThrough() : Readable.from([Buffer.from(stdin)]);
  input.isTTY = tty;
  const [written, complained]: string[][] = [[], []];
  const ended = await chatCommand(
    { gateway, key: 'sk-otela-test', file: undefined },
    { model, system, question },
    {
      input,
      write: (text) => written?.push(text),
      complain: (line) => complained?.push(line),
      open: async () => createInterface({ input: Readable.from([Buffer.from(stdin)]) }),
    },
  ).catch((error: unknown) => error);
  return { ended, written: written?.join('') ?? '', complained: complained ?? [] };
}
interface Terminal {
  stdin: string;
  tty: boolean;
  model: string;
  system: string;
}

it('prints the answer as it arrives, why it waits, and ends the line', async () => {
  answer = (response) =>
    response.end(`: otela queued 2nd\n\n: otela queued 2nd\n\n: ping\n\n${piece('Hel')}${piece('lo')}${DONE}`);
  const { ended, written, complained } = await chat('Hi', { system: 'Be brief.' });
  expect(ended).toBeUndefined();
  expect([written, complained]).toEqual(['Hello\n', ['queued 2nd …']]);
  expect(asked[0]?.headers).toMatchObject({ authorization: 'Bearer sk-otela-test', 'x-otela-resume': '1' });
  expect(asked[0]?.body).toMatchObject({ model: 'org/a', stream: true });
  expect(asked[0]?.body.messages).toEqual([
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Hi' },
  ]);
});

it('puts stdin after the question', async () => {
  await chat('Why?', { tty: false, stdin: 'line 1\nline 2\n' });
  await chat('', { tty: false, stdin: 'Only this.' });
  expect(asked.map(({ body }) => body.messages[0]?.content)).toEqual(['Why?\n\nline 1\nline 2', 'Only this.']);
  const { ended } = await chat('', { tty: false });
  expect(ended).toBeInstanceOf(UsageError);
});

it('talks until the end of its input, in one conversation, without questions that failed', async () => {
  answer = (response, n) => {
    if (n === 2) return response.writeHead(400).end('{"error":{"message":"too long"}}');
    response.end(piece(`answer ${n}`) + DONE);
  };
  const { ended, written, complained } = await chat('', { stdin: 'one\n\ntwo\nthree\n' });
  expect(ended).toBeUndefined();
  expect(written).toBe('answer 1\nanswer 3\n');
  expect(complained).toContain('too long');
  expect(asked[2]?.body.messages.map(({ content }) => content)).toEqual(['one', 'answer 1', 'three']);
  expect(new Set(asked.map(({ headers }) => headers['x-otela-session'])).size).toBe(1);
});

it('an answer does not control the terminal', async () => {
  answer = (response) => response.end(piece('a\u001b[2J\u009b1A\r\u202eb\n\tc') + DONE);
  expect((await chat('Hi')).written).toBe('a[2J1Ab\n\tc\n');
});

it('asks for a model if the key may use several, and says which', async () => {
  models = ['org/a', 'org/b'];
  const { ended } = await chat('Hi');
  expect(ended).toBeInstanceOf(UsageError);
  expect(String(ended)).toContain('org/a, org/b');
  await chat('Hi', { model: 'org/b' });
  expect(asked[0]?.body.model).toBe('org/b');
});

it.each<[string, (response: ServerResponse) => void, string]>([
  ['breaks off', (response) => response.end(piece('half')), 'broke off'],
  ['is cut', (response) => void response.write(piece('half'), () => response.destroy()), 'broke off'],
  ['ends with an error', (response) => response.end(data({ error: { message: 'gone' } })), 'gone'],
  ['is refused', (response) => response.writeHead(503).end('{"error":{"message":"busy"}}'), 'busy'],
])('an answer that %s is reported', async (_, how, message) => {
  answer = how;
  const { ended } = await chat('Hi');
  expect(ended).toBeInstanceOf(UnreachableError);
  expect(String(ended)).toContain(message);
});
