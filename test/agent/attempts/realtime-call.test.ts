/** A realtime session at engines that refuse, redirect, send too much, or never answer. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { PassThrough } from 'node:stream';
import { afterEach, expect, it } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { RealtimeCall } from '../../../agent/attempts/realtime-call.ts';
import { REALTIME } from '../../../shared/openai/endpoints.ts';
import { encodeRecord, RecordReader } from '../../../shared/openai/realtime/message-records.ts';
import { realtimeModelHeader } from '../../../shared/openai/realtime/realtime-model.ts';
import type { OpenFrame } from '../../../shared/wire/frames.ts';

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

async function listen(server: Server): Promise<string> {
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const OPEN: OpenFrame = {
  type: 'open',
  stream: 1,
  resume: false,
  requestId: 'r',
  attempt: 1,
  answerOffset: 0,
  endpoint: REALTIME.id,
  headers: [realtimeModelHeader('Qwen/ä')],
  edits: [],
  streaming: false,
  dropUsage: false,
  firstByteMs: 0,
  stallMs: 0,
  receipt: '',
  bodyLength: undefined,
};

/** Starts a session; `ended` resolves with its end. */
function begin(origin: string) {
  const content = new PassThrough();
  const heads: [status: number, type: string | undefined][] = [];
  const chunks: Uint8Array[] = [];
  let call: RealtimeCall | undefined;
  const ended = new Promise<string>((resolve) => {
    call = new RealtimeCall({
      target: { origin, pathPrefix: '/llm', key: 'engine-key' },
      open: OPEN,
      endpoint: REALTIME,
      content,
      events: {
        onHead: (status, headers) => heads.push([status, headers.find(([name]) => name === 'content-type')?.[1]]),
        onData: (chunk) => chunks.push(chunk),
        onEnd: () => resolve('end'),
        onError: (code, message) => resolve(`${code}: ${message}`),
      },
    });
  });
  return { content, heads, chunks, ended, call: call as RealtimeCall };
}

async function engine(serve: (socket: WebSocket, url: string, key: string | undefined) => void): Promise<string> {
  const sockets = new WebSocketServer({ noServer: true });
  const server = createServer();
  server.on('upgrade', (request, socket, head) =>
    sockets.handleUpgrade(request, socket, head, (one) => serve(one, request.url ?? '', request.headers.authorization)),
  );
  return listen(server);
}

it('the engine gets its key, its path and the model; its messages and its close frame come back', async () => {
  const seen: unknown[] = [];
  const origin = await engine((socket, url, key) => {
    seen.push(url, key);
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }, () => socket.close(4000, 'bye')));
  });
  const { content, chunks, heads, ended } = begin(origin);
  content.write(encodeRecord('binary', Buffer.from('ab')));
  expect(await ended).toBe('end');
  expect(seen).toEqual(['/llm/v1/realtime?model=Qwen%2F%C3%A4', 'Bearer engine-key']);
  expect(heads).toEqual([[200, 'application/x-otela-messages']]);
  expect(new RecordReader().push(Buffer.concat(chunks)).map(({ kind }) => kind)).toEqual(['opened', 'binary', 'close']);
});

it('a refusal is passed on with its status and body, and a redirect is not followed', async () => {
  const server = createServer();
  server.on('upgrade', (_request, socket) =>
    socket.end('HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}'),
  );
  const refused = begin(await listen(server));
  expect(await refused.ended).toBe('end');
  expect([refused.heads, Buffer.concat(refused.chunks).toString()]).toEqual([[[403, 'application/json']], '{}']);
  const other = createServer();
  other.on('upgrade', (_request, socket) =>
    socket.end('HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n'),
  );
  const moved = begin(await listen(other));
  expect(await moved.ended).toBe('engine_closed: the engine answered a WebSocket request with status 302');
  expect(moved.heads).toEqual([]);
});

it('a message that is too long, a broken connection, and a port without an engine are failures of the engine', async () => {
  const long = begin(await engine((socket) => socket.send('x'.repeat(1024 * 1024 + 1))));
  expect(await long.ended).toMatch(/^engine_closed: Max payload size exceeded/);
  const broken = begin(await engine((socket) => socket.terminate()));
  expect(await broken.ended).toMatch(/^engine_closed/);
  expect(await begin('http://127.0.0.1:1').ended).toMatch(/^engine_unreachable: .*ECONNREFUSED/);
});

it('bytes that are no messages end the session, and an aborted call reports nothing', async () => {
  const origin = await engine(() => {});
  const wrong = begin(origin);
  wrong.content.write('GET / HTTP/1.1\r\n\r\n');
  expect(await wrong.ended).toBe('failed: the messages are not valid records');
  const aborted = begin(origin);
  aborted.call.abort();
  const outcome = await Promise.race([aborted.ended, new Promise((resolve) => setTimeout(resolve, 200, 'nothing'))]);
  expect(outcome).toBe('nothing');
});
