import type { Duplex } from 'node:stream';
import { waitClock } from '../../wait-clock.ts';
import { ChannelError, type ChannelErrorCode } from './channel-error.ts';
import { LENGTH_BYTES } from './length-prefixed-messages.ts';

/** Resolves at the first `event` for which `ready` returns a value. Rejects if the socket fails or ends first. */
function waitFor<T>(socket: Duplex, event: string, ready: () => T | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const done = (act: () => void) => {
      socket.off(event, look).off('error', onError).off('close', onEnd).off('end', onEnd);
      act();
    };
    const look = () => {
      const value = ready();
      if (value !== undefined) done(() => resolve(value));
    };
    const fail = (error: ChannelError) => done(() => reject(error));
    const onError = (error: Error) =>
      fail(error instanceof ChannelError ? error : new ChannelError('broken', error.message, { cause: error }));
    const onEnd = () => fail(new ChannelError('broken', 'the connection ended during the handshake'));
    socket.on(event, look).on('error', onError).on('close', onEnd).on('end', onEnd);
    if (socket.destroyed) onEnd();
  });
}

/** Reads exactly `bytes` bytes. Bytes after them stay in the socket. */
export async function readExactly(socket: Duplex, bytes: number): Promise<Buffer> {
  const take = () => {
    const piece: unknown = socket.read(bytes);
    // At the end of a stream `read` returns the remaining bytes, even if they are too few.
    return Buffer.isBuffer(piece) && piece.length === bytes ? piece : undefined;
  };
  return take() ?? waitFor(socket, 'readable', take);
}

/** Reads one message with its length prefix. @throws ChannelError `stranger` if the length exceeds `maxBytes` */
export async function readMessage(socket: Duplex, maxBytes: number): Promise<Buffer> {
  const length = (await readExactly(socket, LENGTH_BYTES)).readUInt32BE();
  if (length > maxBytes) throw new ChannelError('stranger', `a message of ${length} bytes`);
  return length === 0 ? Buffer.alloc(0) : await readExactly(socket, length);
}

export async function waitForEvent(socket: Duplex, event: 'secure' | 'secureConnect'): Promise<void> {
  await waitFor(socket, event, () => true);
}

/** Runs `act`. Destroys the socket with `code` if `act` does not settle in time; `act` sees that as a socket error. */
export async function withDeadline<T>(
  socket: Duplex,
  ms: number,
  code: ChannelErrorCode,
  act: () => Promise<T>,
): Promise<T> {
  const endWait = waitClock.after(ms, () => socket.destroy(new ChannelError(code, `received nothing for ${ms} ms`)));
  try {
    return await act();
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    endWait();
  }
}
