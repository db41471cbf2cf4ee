import type { Socket } from 'node:net';
import type { WebSocket } from 'ws';
import type { LinkPort } from '../../shared/wire/link.ts';
import { lazyFlush } from './lazy-flush.ts';
import { MaskedFrameWriter } from './masked-frame-writer.ts';

/**
 * If more bytes than this wait in the socket, the socket counts as busy. Frames then wait in the link, where they can
 * be merged.
 */
const BUSY_BYTES = 256 * 1024;

/**
 * A `ws` socket as a link's port.
 * @param raw the TCP or TLS connection below `socket`. This port writes frames to it directly, beside the pings of
 * `ws`; both write only whole frames, so that frames are never mixed.
 * @param onDrain called when a busy socket accepts bytes again
 */
export function websocketLinkPort(socket: WebSocket, raw: Socket, onDrain: () => void): LinkPort {
  const frames = new MaskedFrameWriter();
  let busy = false;
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
    // Runs when all sockets were read in this turn of the event loop. So all frames that answer those reads share a
    // message.
    schedule: (flush) => setImmediate(flush),
    later: lazyFlush(),
  };
}
