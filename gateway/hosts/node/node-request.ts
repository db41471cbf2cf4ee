import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';
import type { HttpRequest } from '../../http/http-request.ts';

interface NodeExchange {
  message: IncomingMessage;
  response: ServerResponse;
  encrypted: boolean;
  /** Called with the key's owner when the request's key is valid; see HttpRequest. */
  accepted(holder: string): void;
}

/**
 * A request to a model that `node:http` parsed. The classes of the Fetch standard would cost as much time as all other
 * work on the request.
 */
export class NodeRequest implements HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly client = new ClientDisconnect();
  readonly offloads = true;
  readonly headers: { get(name: string): string | null };
  readonly accepted: (holder: string) => void;
  readonly #message: IncomingMessage;
  readonly #encrypted: boolean;
  readonly #whole: Buffer | undefined;
  #body: ReadableStream<Uint8Array> | null | undefined;
  #controller: AbortController | undefined;

  /** `response` reports when the client disconnects; `whole` is the body, if it came with the head. */
  constructor({ message, response, encrypted, accepted }: NodeExchange, path: string, whole: Buffer | undefined) {
    this.method = message.method ?? 'GET';
    this.path = path;
    this.#message = message;
    this.#encrypted = encrypted;
    this.accepted = accepted;
    this.#whole = whole;
    if (whole !== undefined) this.#body = null;
    this.headers = { get: (name) => headerOf(message, name) };
    response.on('close', () => {
      if (!response.writableFinished) this.#leave();
    });
  }

  /** The body is copied, because the parser's buffer is much larger and a request may run for an hour. */
  get whole(): Uint8Array | undefined {
    return this.#whole === undefined ? undefined : new Uint8Array(this.#whole);
  }

  get url(): string {
    return `${this.#encrypted ? 'https' : 'http'}://${this.#message.headers.host ?? ''}${this.#message.url ?? '/'}`;
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.client.disconnected) this.#controller.abort();
    return this.#controller.signal;
  }

  /** Null if the request has no body. */
  get body(): ReadableStream<Uint8Array> | null {
    if (this.#body === undefined) {
      const { headers } = this.#message;
      const none = headers['transfer-encoding'] === undefined && Number(headers['content-length'] ?? 0) === 0;
      this.#body = none ? null : (Readable.toWeb(this.#message, { type: 'bytes' }) as ReadableStream<Uint8Array>);
    }
    return this.#body;
  }

  /** Reads the whole body without a stream. @throws Error if the body is cut */
  arrayBuffer(): Promise<ArrayBuffer> {
    const message = this.#message;
    if (this.#whole !== undefined) return Promise.resolve(new Uint8Array(this.#whole).buffer);
    return new Promise((resolve, reject) => {
      const parts: Buffer[] = [];
      message.on('data', (part: Buffer) => parts.push(part));
      message.once('end', () => {
        this.#body = null;
        resolve(joined(parts));
      });
      message.once('error', reject);
      message.once('close', () => reject(new Error('the request ended early')));
    });
  }

  #leave(): void {
    this.client.leave();
    this.#controller?.abort();
  }
}

/**
 * `node:http` joins repeated headers as RFC 9110 §5.2 describes, and keeps only the first of repeated headers that must
 * not be repeated.
 */
function headerOf({ headers }: IncomingMessage, name: string): string | null {
  const value = headers[name];
  if (value === undefined) return null;
  return typeof value === 'string' ? value : value.join(', ');
}

/** Larger bodies are read as streams, which have their own limits. */
const WHOLE_MAX_BYTES = 64 * 1024;

/**
 * Reads the body of a small request if all of it has arrived in this turn of the event loop, which is nearly always so.
 * It costs a fraction of a stream. Undefined: the body is large or has not arrived; the received part can be read from
 * `message` again.
 */
export function wholeBody(message: IncomingMessage): Promise<Buffer | undefined> {
  const length = Number(message.headers['content-length'] ?? Number.NaN);
  if (!(length <= WHOLE_MAX_BYTES)) return Promise.resolve(undefined);
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    const onData = (part: Buffer) => parts.push(part);
    const onEnd = () => {
      clearImmediate(late);
      resolve(parts.length === 1 ? parts[0] : Buffer.concat(parts));
    };
    const late = setImmediate(() => {
      message.removeListener('data', onData);
      message.removeListener('end', onEnd);
      message.pause();
      if (parts.length > 0) message.unshift(Buffer.concat(parts));
      resolve(undefined);
    });
    message.on('data', onData);
    message.once('end', onEnd);
  });
}

function joined(parts: Buffer[]): ArrayBuffer {
  const [first] = parts;
  const bytes = parts.length === 1 && first !== undefined ? first : Buffer.concat(parts);
  return new Uint8Array(bytes).buffer;
}
