import type { IncomingMessage, ServerResponse } from 'node:http';
import { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import type { BodyReader, BodySource, ProxyRequest } from '../../shared/proxy/proxy-http-types.ts';

/** A request to the ingress, in the form that the pipeline reads. */
export class IngressRequest implements ProxyRequest, BodySource {
  readonly method: string;
  readonly path: string;
  readonly client = new ClientDisconnect();
  readonly whole = undefined;
  readonly address: string;
  readonly #message: IncomingMessage;
  readonly #chunks: AsyncIterator<Uint8Array>;
  /** True if a reader was already given out. */
  #locked = false;

  constructor(message: IncomingMessage, response: ServerResponse, path: string) {
    this.#message = message;
    // destroyOnReturn is off, because an error response is sent on the same connection.
    this.#chunks = message.iterator({ destroyOnReturn: false });
    this.method = message.method ?? 'GET';
    this.path = path;
    this.address = message.socket.remoteAddress ?? '';
    response.once('close', () => {
      if (!response.writableFinished) this.client.leave();
    });
  }

  get body(): BodySource {
    return this;
  }

  header(name: string): string | undefined {
    const value = this.#message.headers[name];
    return Array.isArray(value) ? value.join(', ') : value;
  }

  /** Reads the body. Unread bytes stay in the client's socket. */
  reader(): BodyReader | undefined {
    if (this.#locked || this.#message.readableEnded || this.#message.destroyed) return undefined;
    this.#locked = true;
    return {
      read: async () => {
        const { done, value } = await this.#chunks.next();
        return done ? undefined : value;
      },
      cancel: async () => {}, // the body stays locked, and `writeResponse` ends the connection
      release: () => {
        this.#locked = false;
      },
    };
  }
}
