import type { ResponseSink } from './message.ts';

/** The part of `node:http`'s ServerResponse that a body is written by. */
interface ServerResponse {
  readonly destroyed: boolean;
  /** False if the written bytes wait for the client. */
  write(bytes: Uint8Array): boolean;
  end(): unknown;
  destroy(): unknown;
  on(event: 'drain' | 'close', call: () => void): unknown;
  removeListener(event: 'drain' | 'close', call: () => void): unknown;
}

/** Writes to a client's own socket. A write waits only while the socket is full. */
export function serverSink(response: ServerResponse): ResponseSink {
  return {
    write: (bytes) => {
      if (response.destroyed) throw new Error('the client left');
      return response.write(bytes) ? undefined : drained(response);
    },
    end: () => void response.end(),
    abort: () => void response.destroy(),
  };
}

/** Resolves when `response` takes more, or has closed: a destroyed one emits `close` alone. */
export function drained(response: ServerResponse): Promise<void> {
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
