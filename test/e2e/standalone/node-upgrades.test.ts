/** Upgrades that an object accepted and that then fail: the object learns that its socket is gone. */
import { EventEmitter, once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterEach, expect, it, vi } from 'vitest';
import { WebSocket } from 'ws';
import type { Env } from '../../../gateway/env.ts';
import { ClientConnections } from '../../../gateway/hosts/node/client-connections.ts';
import { NodeSockets, upgradeOf } from '../../../gateway/hosts/node/node-sockets.ts';
import type { OutputGate } from '../../../gateway/hosts/node/output-gate.ts';
import { Upgrades } from '../../../gateway/hosts/node/websocket-upgrades.ts';
import type { ObjectSocket } from '../../../gateway/platform/object-context.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { PING_TEXT, PONG_TEXT } from '../../../shared/wire/heartbeat.ts';
import { eventually } from '../../support/processes.ts';

const answer = vi.hoisted(() => ({ fetch: (): Promise<Response> => Promise.reject(new Error('not set')) }));
vi.mock('../../../gateway/app.ts', () => ({ app: { fetch: () => answer.fetch() } }));

const HEAD = 'GET /agent/connect HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n';
const GOOD = `${HEAD}sec-websocket-version: 13\r\nsec-websocket-key: ${Buffer.alloc(16).toString('base64')}\r\n\r\n`;

let server: Server | undefined;
const clients: Socket[] = [];

afterEach(() => {
  for (const client of clients.splice(0)) client.destroy();
  server?.close();
});

const gate = { pass: (act: () => void) => act() } as unknown as OutputGate;

async function open(connections = new ClientConnections()) {
  const closed: unknown[] = [];
  const sockets: NodeSockets = new NodeSockets(
    gate,
    () => ({ webSocketClose: (socket) => void closed.push(socket) }),
    (work) => work(),
  );
  const background = { waitUntil: () => {} };
  const upgrades = new Upgrades({ env: {} as Env, background, encrypted: false, connections });
  const made = createServer();
  server = made;
  made.on('connection', (socket) => connections.add(socket));
  made.on('upgrade', (message, socket, head) => neverRejects(upgrades.take(message, socket, head)));
  made.listen(0, '127.0.0.1');
  await once(made, 'listening');
  const client = connect((made.address() as AddressInfo).port, '127.0.0.1').on('error', () => {});
  clients.push(client);
  return { sockets, closed, upgrades, client };
}

it('for a handshake that is none', async () => {
  const { sockets, closed, client } = await open();
  answer.fetch = async () => sockets.accept().response;
  client.write(GOOD.replace(/-key: .*/, '-key: none'));
  expect(String((await once(client, 'data'))[0])).toContain('400');
  expect([sockets.size, closed.length]).toEqual([0, 1]);
});

it('for a client that has left meanwhile', async () => {
  const { sockets, closed, client } = await open();
  answer.fetch = async () => {
    client.destroy();
    await new Promise((resolve) => setTimeout(resolve, 100));
    return sockets.accept().response;
  };
  client.write(GOOD);
  await eventually('the object hears of it', 5_000, () => closed.length === 1 || undefined);
  expect(sockets.size).toBe(0);
});

it('if there are too many WebSockets, with 503', async () => {
  const none = { max: 10, webSockets: 0, unproven: 10, unprovenPerAddress: 10 };
  const { sockets, closed, client } = await open(new ClientConnections(none));
  answer.fetch = async () => sockets.accept().response;
  client.write(GOOD);
  expect(String((await once(client, 'data'))[0])).toMatch(/^HTTP\/1\.1 503 .*server_is_overloaded/s);
  expect([sockets.size, closed.length]).toEqual([0, 1]);
});

it('at the end of the process, with 503', async () => {
  const { sockets, closed, upgrades, client } = await open();
  answer.fetch = async () => {
    upgrades.close();
    return sockets.accept().response;
  };
  client.write(GOOD);
  expect(String((await once(client, 'data'))[0])).toMatch(/^HTTP\/1\.1 503 .*\r\nretry-after: 1\r\n/s);
  await eventually('the object hears of it', 5_000, () => closed.length === 1 || undefined);
  expect(sockets.size).toBe(0);
});

it('passes a binary message of an open connection on without copying it', () => {
  const messages: (string | Uint8Array)[] = [];
  const webSocketMessage = (_socket: unknown, message: string | Uint8Array) => void messages.push(message);
  const sockets = new NodeSockets(
    gate,
    () => ({ webSocketMessage }),
    (work) => work(),
  );
  const connection = Object.assign(new EventEmitter(), { readyState: 1, binaryType: '' });
  upgradeOf(sockets.accept().response)?.socket.attach(connection as unknown as WebSocket);
  const read = Buffer.from('two messages of one read');
  connection.emit('message', read.subarray(4, 12), true);
  connection.emit('message', read.subarray(4, 12), false);
  const [bytes, text] = messages;
  expect(connection.binaryType, 'for other types `ws` copies').toBe('nodebuffer');
  expect(bytes).toEqual(new Uint8Array(Buffer.from('messages')));
  expect(bytes).not.toBeInstanceOf(Buffer);
  expect((bytes as Uint8Array).buffer).toBe(read.buffer);
  expect(text).toBe('messages');
});

it('a heartbeat is answered between two messages of the object, and not again within 100 ms', async () => {
  const { sockets } = await open();
  let object: ObjectSocket | undefined;
  answer.fetch = async () => {
    const { socket, response } = sockets.accept();
    object = socket;
    return response;
  };
  const address = server?.address() as AddressInfo;
  const agent = new WebSocket(`ws://127.0.0.1:${address.port}/agent/connect`);
  const heard: string[] = [];
  agent.on('message', (data: Buffer, isBinary) => heard.push(`${isBinary ? 'binary' : 'text'} ${data.toString()}`));
  await once(agent, 'open');
  object?.send(new TextEncoder().encode('one'));
  agent.send(PING_TEXT);
  agent.send(PING_TEXT);
  await eventually('the pong', 5_000, () => heard.length === 2 || undefined);
  object?.send(new TextEncoder().encode('two'));
  await eventually('the second message', 5_000, () => heard.length === 3 || undefined);
  expect(heard).toEqual(['binary one', `text ${PONG_TEXT}`, 'binary two']);
  agent.terminate();
});
