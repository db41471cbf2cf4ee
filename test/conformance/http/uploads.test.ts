/** Large bodies from clients that send little of them, or nonsense. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { promise } from '../../support/patience.ts';
import { endAll } from '../../support/processes.ts';
import { dial } from '../../support/raw.ts';
import { chatBody, envelopeOf, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

const MIB = 1024 * 1024;
const STALL_MS = promise(2_000);

let cluster: TestCluster;
beforeAll(async () => {
  const env = { BODY_STALL_MS: String(STALL_MS), BODY_UPLOADS_BYTES: String(32 * MIB) };
  cluster = await openTestCluster({ gateway: { env } });
});
afterAll(endAll);

function head(more: string): string {
  const { host } = new URL(cluster.gateway.url);
  return `POST /v1/chat/completions HTTP/1.1\r\nhost: ${host}\r\nauthorization: Bearer ${cluster.key}\r\ncontent-type: application/json\r\n${more}\r\n`;
}

/** Reads until there is a whole JSON body. */
async function answerOf(socket: Socket): Promise<string> {
  let text = '';
  while (!text.endsWith('}')) {
    const [piece] = await once(socket, 'data');
    text += piece;
  }
  return text;
}

it('who announces much and sends nothing keeps nobody out, and is given up', async () => {
  const idle = [await dial(cluster.gateway.url), await dial(cluster.gateway.url)];
  const answers = idle.map((socket) => answerOf(socket));
  for (const socket of idle) socket.write(`${head(`content-length: ${26 * MIB}\r\n`)}{"model":"m"`);
  const large = chatBody({ tokens: 1 }, { padding: 'x'.repeat(2 * MIB) });
  expect((await cluster.ask('/v1/chat/completions', large)).status).toBe(200);
  for (const answer of await Promise.all(answers)) {
    expect(answer).toMatch(/^HTTP\/1\.1 408 /);
    expect(answer).toContain('"code":"request_timeout"');
  }
  for (const socket of idle) socket.destroy();
});

it('a large body at a bad line’s pace is not given up', async () => {
  const body = JSON.stringify(chatBody({ tokens: 1 }, { padding: 'x'.repeat(2 * MIB) }));
  const socket = await dial(cluster.gateway.url);
  const answer = answerOf(socket);
  socket.write(head(`content-length: ${body.length}\r\n`));
  const step = Math.ceil(body.length / 4);
  for (let at = 0; at < body.length; at += step) {
    socket.write(body.slice(at, at + step));
    await new Promise((resolve) => setTimeout(resolve, STALL_MS / 2)); // the rate of the body
  }
  expect(await answer).toMatch(/^HTTP\/1\.1 200 /);
  socket.destroy();
});

it('chunks that are none are the client’s mistake, and are not asked about again', async () => {
  const socket = await dial(cluster.gateway.url);
  const answer = answerOf(socket);
  socket.write(`${head('transfer-encoding: chunked\r\n')}zz\r\n{"model":"m"}\r\n0\r\n\r\n`);
  const text = await answer;
  expect(text).toMatch(/^HTTP\/1\.1 400 /);
  const envelope = await envelopeOf(new Response(text.slice(text.indexOf('\r\n\r\n') + 4), { status: 400 }));
  expect(envelope.code).toBe('invalid_request');
  socket.destroy();
});

it.each([
  ['with a length', (bytes: number) => `content-length: ${bytes}\r\n`, (text: string) => text],
  [
    'in chunks',
    () => 'transfer-encoding: chunked\r\n',
    (text: string) => `${(text.length + 9).toString(16)}\r\n${text}`,
  ],
])('a small body that stops, %s, is given up', async (_, framing, written) => {
  const socket = await dial(cluster.gateway.url);
  const answer = answerOf(socket);
  socket.write(`${head(framing(100))}${written('{"model":"m"')}`);
  const text = await answer;
  expect(text).toMatch(/^HTTP\/1\.1 408 /);
  expect(text).toContain('"code":"request_timeout"');
  socket.destroy();
});

it('hundreds of bodies that stop two bytes before their end hold a bounded memory, and keep nobody out', async () => {
  const body = JSON.stringify(chatBody({ tokens: 1 }, { padding: 'x'.repeat(MIB - 1_000) }));
  const before = cluster.gateway.memoryMib();
  const sockets = await Promise.all(Array.from({ length: 200 }, () => dial(cluster.gateway.url)));
  for (const socket of sockets) socket.on('error', () => {}).resume();
  const bytes = Buffer.from(head(`content-length: ${body.length}\r\n`) + body.slice(0, -2));
  let most = 0;
  for (let at = 0; at < sockets.length; at += 100) {
    for (const socket of sockets.slice(at, at + 100)) socket.write(bytes);
    await new Promise((resolve) => setTimeout(resolve, 200)); // lets the gateway read these before the next ones
    most = Math.max(most, cluster.gateway.memoryMib());
  }
  const large = chatBody({ tokens: 1 }, { padding: 'x'.repeat(MIB / 2) });
  const asked = await Promise.all(Array.from({ length: 5 }, () => cluster.ask('/v1/chat/completions', large)));
  expect(asked.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
  most = Math.max(most, cluster.gateway.memoryMib());
  // In MiB: the 32 that bodies may hold, twice that as garbage, and what 200 connections hold in three sockets each.
  // All bodies together are 200 MiB.
  expect(most - before).toBeLessThan(220);
  for (const socket of sockets) socket.destroy();
});
