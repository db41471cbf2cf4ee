import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import { openGatewayLeg } from '../../../agent/mesh/circuit/gateway-circuit.ts';
import { CONNECTED_TEXT } from '../../../shared/wire/gateway-circuit.ts';
import { identity } from './node.ts';

let server: WebSocketServer | undefined;

afterEach(() => {
  for (const client of server?.clients ?? []) client.terminate();
  server?.close();
});

it('what comes in one piece with the word that the other end is there is not lost', async () => {
  const made = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  server = made;
  made.on('connection', (socket: WebSocket, { socket: tcp }) => {
    tcp.cork();
    socket.send(CONNECTED_TEXT);
    socket.send(Buffer.from('hello'));
    tcp.uncork();
  });
  await once(made, 'listening');
  const me = identity();
  const leg = await openGatewayLeg({
    gateway: new URL(`http://127.0.0.1:${(made.address() as AddressInfo).port}/`),
    to: 'x',
    identity: { session: me.session, publicKey: new Uint8Array(32), sign: () => new Uint8Array(64) },
    ticket: me.ticket,
    env: {},
    signal: AbortSignal.timeout(5_000),
  });
  const [piece] = await once(leg, 'data', { signal: AbortSignal.timeout(2_000) });
  expect(String(piece)).toBe('hello');
  leg.destroy();
});
