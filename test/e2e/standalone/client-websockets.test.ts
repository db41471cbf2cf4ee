/** A WebSocket of a client on the Node host holds a bounded number of bytes for a client that does not read. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { WebSocketServer } from 'ws';
import { nodeClientWebSockets } from '../../../gateway/hosts/node/client-websockets.ts';
import { upgradeOf } from '../../../gateway/hosts/node/node-sockets.ts';
import { CLIENT_SOCKET_WAITING_MAX_BYTES } from '../../../gateway/http/client-websocket.ts';
import { RealtimeRequest } from '../../../gateway/openai/realtime/realtime-request.ts';
import { RealtimeSession } from '../../../gateway/openai/realtime/realtime-session.ts';
import { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';
import { eventually } from '../../support/processes.ts';

const MODEL = 'm';
const FOREIGN = JSON.stringify({ type: 'session.update', session: { model: 'other' } });
const MESSAGES = 60_000;
const MAX_BYTES = 4 * CLIENT_SOCKET_WAITING_MAX_BYTES;

/** A masked text frame (RFC 6455 §5.2). The mask is zero. */
function frame(text: string): Buffer {
  return Buffer.concat([Buffer.from([0x81, 0x80 | text.length, 0, 0, 0, 0]), Buffer.from(text)]);
}

it('stops reading a client that sends messages for another model and does not read the errors', async () => {
  const server = createServer();
  const sockets = new WebSocketServer({ server });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const client = connect(port, '127.0.0.1');
  onTestFinished(() => {
    client.destroy();
    sockets.close();
    server.close();
  });
  client.pause();
  client.write(
    `GET /v1/realtime HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${Buffer.alloc(16).toString('base64')}\r\n\r\n`,
  );
  const [connection] = await once(sockets, 'connection');
  let most = 0;
  connection.on('message', () => {
    most = Math.max(most, connection.bufferedAmount);
  });

  const socket = nodeClientWebSockets.create();
  upgradeOf(socket.accept({}))?.socket.attach(connection);
  const disconnect = new ClientDisconnect();
  const request = new RealtimeRequest(new Request(`http://gateway/v1/realtime?model=${MODEL}`), socket, disconnect);
  const session = new RealtimeSession({ socket, request, recheck: () => Promise.resolve(), stopping: undefined });
  const over = session.run(async () => {
    await request.body.reader()?.read();
  });
  client.write(Buffer.concat(Array<Buffer>(MESSAGES).fill(frame(FOREIGN))));

  await eventually('the client is no longer read', 30_000, () => connection.isPaused || most > MAX_BYTES || undefined);
  expect(connection.isPaused).toBe(true);
  expect(most).toBeGreaterThan(CLIENT_SOCKET_WAITING_MAX_BYTES);
  expect(most).toBeLessThan(MAX_BYTES);

  client.destroy();
  connection.terminate();
  await over; // The session ends although an error could not be sent.
});
