import type { WebSocket } from 'ws';
import type { LinkPort } from '../../shared/wire/link.ts';

/** Above this the socket counts as busy: frames wait and merge instead of queueing one by one. */
const BUSY_BYTES = 256 * 1024;

/** An acknowledgement waits this long for an answer to ride with; the gateway gives it a second. */
const LAZY_MS = 5;

/** A ws socket as a link's port. `onDrain` is called when a busy socket takes bytes again. */
export function socketPort(socket: WebSocket, onDrain: () => void): LinkPort {
  let busy = false;
  let lazy: NodeJS.Timeout | undefined;
  const written = (): void => {
    if (!busy || socket.bufferedAmount >= BUSY_BYTES / 2) return;
    busy = false;
    onDrain();
  };
  return {
    send: (message) => {
      socket.send(message, written);
      busy = socket.bufferedAmount >= BUSY_BYTES;
    },
    copies: true, // masked into a buffer of its own: see nonZeroMask
    busy: () => busy,
    // After the reads of this turn of the event loop: what they brought shares a message.
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
