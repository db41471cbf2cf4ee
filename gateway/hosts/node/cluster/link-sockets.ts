/** WebSockets of objects in another process: the messages of one socket on one stream of a link. */
import { EventEmitter } from 'node:events';
import type { Http2Stream } from 'node:http2';
import type { RawData } from 'ws';
import * as z from 'zod';
import type { SocketConnection } from '../node-sockets.ts';
import { encodeLinkFrame, LinkFrameReader } from './link-frames.ts';

/** If more bytes wait for the other process, the socket is closed. */
const UNSENT_MAX_BYTES = 16 * 1024 * 1024;
const [OPEN, CLOSED] = [1, 3];
/** Close codes (RFC 6455 §7.4.1): the service restarts; try again later. */
const [RESTART, TRY_LATER] = [1012, 1013];

const messageSchema = z.union([
  z.object({ data: z.union([z.string(), z.custom<Uint8Array>((value) => value instanceof Uint8Array)]) }),
  z.object({ close: z.number().optional(), reason: z.string().optional() }),
]);
type SocketMessage = z.infer<typeof messageSchema>;

class SocketStream {
  readonly #stream: Http2Stream;
  readonly #reader = new LinkFrameReader();

  constructor(stream: Http2Stream, on: { message(message: SocketMessage): void; end(): void }) {
    this.#stream = stream;
    stream.on('data', (bytes: Buffer) => {
      try {
        this.#reader.add(bytes);
        for (let next = this.#reader.next(); next !== undefined; next = this.#reader.next())
          on.message(messageSchema.parse(next.value));
      } catch {
        stream.destroy();
      }
    });
    stream.on('close', () => on.end());
    stream.resume();
  }

  /** False: too many bytes wait. */
  write(message: SocketMessage): boolean {
    if (this.#stream.destroyed || !this.#stream.writable) return true;
    this.#stream.write(encodeLinkFrame(message));
    return this.#stream.writableLength <= UNSENT_MAX_BYTES;
  }

  end(): void {
    if (!this.#stream.destroyed) this.#stream.end();
  }
}

/** The object's end: to the object it looks like a connection of `ws`. */
export class LinkedConnection extends EventEmitter implements SocketConnection {
  readonly #stream: SocketStream;
  #closed = false;

  constructor(stream: Http2Stream) {
    super();
    this.#stream = new SocketStream(stream, {
      message: (message) => {
        if (!('data' in message)) return this.#end();
        const isBinary = typeof message.data !== 'string';
        this.emit('message', typeof message.data === 'string' ? Buffer.from(message.data) : message.data, isBinary);
      },
      end: () => this.#end(),
    });
  }

  get readyState(): number {
    return this.#closed ? CLOSED : OPEN;
  }

  send(data: string | Uint8Array): void {
    if (!this.#closed && !this.#stream.write({ data })) this.close(TRY_LATER, 'too many bytes wait');
  }

  close(code?: number, reason?: string): void {
    if (this.#closed) return;
    this.#stream.write({ close: code, reason });
    this.#stream.end();
    this.#end();
  }

  #end(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.emit('close');
  }
}

/** Connects a client's WebSocket with a stream to the object's process. */
export function joinSocket(connection: SocketConnection, stream: Http2Stream): void {
  const remote = new SocketStream(stream, {
    message: (message) => {
      if ('data' in message) connection.send(message.data);
      else connection.close(message.close, message.reason);
    },
    end: () => connection.close(RESTART, 'the process of this socket has ended'),
  });
  connection.on('message', (data: RawData, isBinary: boolean) => {
    const bytes = data as Buffer;
    if (!remote.write({ data: isBinary ? new Uint8Array(bytes) : bytes.toString() }))
      connection.close(TRY_LATER, 'too many bytes wait');
  });
  connection.on('close', () => {
    remote.write({});
    remote.end();
  });
  connection.on('error', () => {}); // the event 'close' follows
}
