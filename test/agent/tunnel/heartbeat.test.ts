import { EventEmitter } from 'node:events';
import { Writable } from 'node:stream';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import type { WebSocket } from 'ws';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { GatewayConnection } from '../../../agent/tunnel/gateway-connection.ts';
import { sessionIdentityOf } from '../../../agent/tunnel/session-identity.ts';
import { encodeFrame } from '../../../shared/wire/frame-codec.ts';
import { PING_TEXT, PONG_TEXT } from '../../../shared/wire/heartbeat.ts';
import type { Link } from '../../../shared/wire/link.ts';
import { OutboundStream } from '../../../shared/wire/outbound-stream.ts';
import { SOCKET_WINDOW_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { labTicket } from '../support/fake-admission.ts';

// For all tests together: the wait clock keeps its timer.
beforeAll(() => void vi.useFakeTimers());
afterAll(() => void vi.useRealTimers());

/** A socket to a gateway that answers pings until `isSilent`. */
class FakeSocket extends EventEmitter {
  readonly OPEN = 1;
  readonly url = 'ws://gateway.example/';
  readyState = 1;
  pings = 0;
  isSilent = false;

  send(message: string | Uint8Array): void {
    if (message !== PING_TEXT) return;
    this.pings++;
    if (!this.isSilent) setTimeout(() => this.emit('message', Buffer.from(PONG_TEXT), false), 1);
  }

  terminate(): void {
    this.readyState = 3;
    this.emit('close', 1006, Buffer.alloc(0));
  }
}

function connected(purpose: '' | 'gossip:' = ''): { socket: FakeSocket; link: Link; closed: () => boolean } {
  const socket = new FakeSocket();
  const key = createSessionKey();
  const seen: { link?: Link; closed: boolean } = { closed: false };
  const events = {
    onReady: (link: Link) => void Object.assign(seen, { link }),
    onFrame: () => {},
    onMessageEnd: () => {},
    onClosed: () => void Object.assign(seen, { closed: true }),
  };
  const identity = sessionIdentityOf(labTicket(key.publicKey), key);
  new GatewayConnection(socket as unknown as WebSocket, identity, 1, events, purpose);
  const raw = new Writable({ write: (_chunk, _encoding, done) => done() });
  socket.emit('upgrade', { socket: raw });
  socket.emit('open');
  const welcome = encodeFrame({ type: 'welcome', window: SOCKET_WINDOW_BYTES, gateway: 'gw' });
  socket.emit('message', Buffer.from(welcome), true);
  if (seen.link === undefined) throw new Error('the connection is not ready');
  return { socket, link: seen.link, closed: () => seen.closed };
}

function pingsIn(socket: FakeSocket, seconds: number): number {
  const before = socket.pings;
  vi.advanceTimersByTime(seconds * 1_000);
  return socket.pings - before;
}

it('a tunnel without streams sends a ping every 30 s, and with a stream every 15 s', () => {
  const { socket, link } = connected();
  expect(pingsIn(socket, 300)).toBe(10);
  link.attach(1, { outgoing: new OutboundStream(), ending: () => [] });
  expect(pingsIn(socket, 300)).toBe(20);
  link.detach(1);
  expect(pingsIn(socket, 300)).toBe(10);
});

it('the socket of a gossip delegate sends a ping every 15 s', () => {
  expect(pingsIn(connected('gossip:').socket, 300)).toBe(20);
});

it('a gateway that no longer answers is left within 45 s', () => {
  const { socket, closed } = connected();
  socket.isSilent = true;
  vi.advanceTimersByTime(45_000);
  expect(closed()).toBe(true);
});
