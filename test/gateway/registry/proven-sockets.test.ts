import { expect, it } from 'vitest';
import type { ObjectSocket } from '../../../gateway/platform/object-context.ts';
import { closeSocket } from '../../../gateway/registry/proven-sockets.ts';

it('closes a socket whose peer dialed a host of characters with two bytes', () => {
  const [socket, other] = Object.values(new WebSocketPair());
  socket?.accept();
  other?.accept();
  closeSocket(socket as unknown as ObjectSocket, 4004, `not this session's signature for Host ${'é'.repeat(64)}`);
  expect(socket?.readyState).not.toBe(WebSocket.READY_STATE_OPEN);
});
