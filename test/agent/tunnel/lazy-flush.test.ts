import type { Socket } from 'node:net';
import { Writable } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { WebSocket } from 'ws';
import type { ChannelPeer } from '../../../agent/mesh/channel/accept-channel.ts';
import { Channel, type ChannelEvents } from '../../../agent/mesh/channel/channel.ts';
import { websocketLinkPort } from '../../../agent/tunnel/websocket-link-port.ts';
import { ACCEPT_MS } from '../../../shared/attempts/accept-timeout.ts';
import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import { Link } from '../../../shared/wire/link.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A socket that counts the writes. Each write is one message. */
class Counter extends Writable {
  messages = 0;

  override _write(_chunk: unknown, _encoding: string, done: () => void): void {
    this.messages++;
    done();
  }
}

const LINKS: Record<string, (socket: Counter) => Link> = {
  'a tunnel': (socket) => {
    const open = { readyState: 1, OPEN: 1 } as WebSocket;
    const port = websocketLinkPort(open, socket as unknown as Socket, () => {});
    return new Link(port, { send: 1_000, receive: 1_000 }, new FrameMeter(() => performance.now()));
  },
  'a channel': (socket) => {
    const peer = {} as ChannelPeer;
    const proven = { socket: socket as unknown as TLSSocket, peer };
    return new Channel(proven, true, {} as ChannelEvents).link;
  },
};

describe.each(Object.entries(LINKS))('%s', (_name, open) => {
  let socket: Counter;
  let link: Link;
  let stream = 1;
  beforeEach(() => {
    socket = new Counter();
    link = open(socket);
  });

  const acknowledge = () => link.putLazily({ type: 'accept', stream: ++stream, bodyOffset: 0, bodyDone: true });
  const answer = () => link.put({ type: 'end', stream, offset: 0 });

  /** Acknowledges a request, and answers it `ms` later. Returns the number of messages until then. */
  const request = (ms: number): number => {
    const before = socket.messages;
    acknowledge();
    vi.advanceTimersByTime(ms);
    const early = socket.messages - before;
    answer();
    vi.advanceTimersByTime(1);
    return early;
  };

  it('sends the acknowledgment of a slow answer long before the gateway gives the node up, after quick ones too', () => {
    expect([request(1), request(4), request(2)]).toEqual([0, 0, 0]);
    expect(request(ACCEPT_MS / 10)).toBe(1);
    expect([request(1), request(ACCEPT_MS / 10)]).toEqual([0, 1]);
  });

  it('wakes the process at most 20 times a second, however many requests arrive', () => {
    const timers = vi.spyOn(globalThis, 'setTimeout');
    for (let ms = 0; ms < 1_000; ms += 2) request(1); // each lasts 2 ms
    expect(timers.mock.calls.length).toBeGreaterThan(0);
    expect(timers.mock.calls.length).toBeLessThanOrEqual(20);
    expect(socket.messages).toBeLessThanOrEqual(500 + 20);
  });
});
