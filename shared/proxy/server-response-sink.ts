import type { ResponseSink } from './proxy-http-types.ts';

/** The part of `node:http`'s ServerResponse that writing a body needs. */
interface ServerResponse {
  readonly destroyed: boolean;
  /** False if the written bytes are buffered because the socket is full. */
  write(bytes: Uint8Array): boolean;
  end(): unknown;
  destroy(): unknown;
  on(event: 'drain' | 'close', call: () => void): unknown;
  removeListener(event: 'drain' | 'close', call: () => void): unknown;
}

/** Writes to a client's socket. A write waits only while the socket is full. */
export function serverSink(response: ServerResponse): ResponseSink {
  return {
    write: (bytes) => {
      if (response.destroyed) throw new Error('the client disconnected');
      return response.write(bytes) ? undefined : waitForDrain(response);
    },
    end: () => void response.end(),
    abort: () => void response.destroy(),
  };
}

/** Resolves when `response` accepts more, or has closed. A destroyed response emits only `close`. */
export function waitForDrain(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const over = () => {
      response.removeListener('drain', over);
      response.removeListener('close', over);
      resolve();
    };
    response.on('drain', over);
    response.on('close', over);
  });
}
