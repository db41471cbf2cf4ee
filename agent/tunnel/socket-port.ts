import type { Socket } from 'node:net';
import type { WebSocket } from 'ws';
import type { LinkPort } from '../../shared/wire/link.ts';
import { MaskedFrameWriter } from './masked-frame.ts';

/** Above this the socket counts as busy: frames wait and merge instead of queueing one by one. */
const BUSY_BYTES = 256 * 1024;

/** An acknowledgement waits this long for an answer to ride with; the gateway gives it a second. */
const LAZY_MS = 5;

/**
 * A ws socket as a link's port. `raw` is the connection below it. Our frames go there whole, and so do the frames of `ws` (pings and the
 * like), so that no frame ever stands inside another. `onDrain` is called when a busy socket takes bytes again.
 */
export function socketPort(socket: WebSocket, raw: Socket, onDrain: () => void): LinkPort {
  const frames = new MaskedFrameWriter();
  let busy = false;
  let lazy: NodeJS.Timeout | undefined;
  const written = (): void => {
    if (!busy || raw.writableLength >= BUSY_BYTES / 2) return;
    busy = false;
    onDrain();
  };
  return {
    send: (message) => {
      if (socket.readyState !== socket.OPEN) return; // no frame may follow a close frame
      const { frame, release } = frames.make(message);
      raw.write(frame, () => {
        release();
        written();
      });
      busy = raw.writableLength >= BUSY_BYTES;
    },
    copies: true,
    stuck: () => socket.terminate(),
    busy: () => busy,
    // After the reads of this turn of the event loop: the frames that answer them share a message.
    schedule: (flush) => setImmediate(flush),
    later: (flush) => {
      if (lazy !== undefined) return;
      lazy = setTimeout(() => {
        lazy = undefined;
        flush();
      }, LAZY_MS);
    },
  };
}
