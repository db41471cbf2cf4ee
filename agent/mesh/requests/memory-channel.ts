import { FrameMeter } from '../../../shared/wire/frame-limits.ts';
import { Link, type LinkPort } from '../../../shared/wire/link.ts';
import { SOCKET_WINDOW_BYTES } from '../../../shared/wire/protocol-constants.ts';
import { WireError } from '../../../shared/wire/wire-error.ts';
import type { RequestChannel, RequestChannelEvents } from './request-channel.ts';

/** Delivers messages through memory. As on a socket, the frames of one turn share a message. */
class MemoryPort implements LinkPort {
  deliver: (message: Uint8Array) => void = () => {};

  send(message: Uint8Array): void {
    queueMicrotask(() => this.deliver(message));
  }

  busy(): boolean {
    return false; // never busy: credit bounds the waiting bytes
  }

  stuck(): void {
    // Never called, because this port is never busy.
  }

  schedule(flush: () => void): void {
    setImmediate(flush);
  }
}

type EndEvents = Omit<RequestChannelEvents, 'onChannel'>;

export interface MemoryChannel {
  readonly near: RequestChannel;
  readonly far: RequestChannel;
  /** Ends both sides. Idempotent. */
  close(): void;
}

/** A channel whose two ends are in this process: to our own engine, or in a test. `near` is the dialing end. */
export function memoryChannel(
  near: { session: string; provider: string; events: EndEvents },
  far: { session: string; provider: string; events: EndEvents },
): MemoryChannel {
  const ports = [new MemoryPort(), new MemoryPort()] as const;
  const windows = { send: SOCKET_WINDOW_BYTES, receive: SOCKET_WINDOW_BYTES };
  const link = (port: LinkPort) => new Link(port, windows, new FrameMeter(() => performance.now()));
  const links = [link(ports[0]), link(ports[1])] as const;
  let open = true;
  const end = (other: { session: string; provider: string }, link: Link, dialled: boolean): RequestChannel => ({
    session: other.session,
    provider: other.provider,
    link,
    dialled,
    get closed() {
      return !open;
    },
  });
  const pair: MemoryChannel = {
    near: end(far, links[0], true),
    far: end(near, links[1], false),
    close: () => {
      if (!open) return;
      open = false;
      for (const link of links) link.close();
      near.events.onChannelClosed(pair.near);
      far.events.onChannelClosed(pair.far);
    },
  };
  const deliver = (channel: RequestChannel, events: EndEvents) => (message: Uint8Array) => {
    if (!open) return;
    try {
      channel.link.receive(message, (frame) => {
        if ('stream' in frame || frame.type === 'settled' || frame.type === 'load') events.onFrame(channel, frame);
      });
      events.onMessageEnd(channel);
    } catch (error) {
      // A protocol error ends the channel and not the process, as it does on a socket.
      if (!(error instanceof WireError) && !(error instanceof RangeError)) throw error;
      pair.close();
    }
  };
  ports[1].deliver = deliver(pair.near, near.events);
  ports[0].deliver = deliver(pair.far, far.events);
  return pair;
}
