import { PieceReader } from '../../shared/attempts/piece-reader.ts';
import type { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import type { BodyReader, BodySource, ProxyRequest } from '../../shared/proxy/proxy-http-types.ts';
import type { HttpRequest } from '../http/http-request.ts';

/** A request as the gateway's host received it, in the form that the pipeline reads. */
export class GatewayRequest implements ProxyRequest, BodySource {
  readonly method: string;
  readonly path: string;
  readonly client: ClientDisconnect;
  readonly whole: Uint8Array | undefined;
  readonly #http: HttpRequest;
  #reader: PieceReader | undefined;

  constructor(http: HttpRequest, path: string, client: ClientDisconnect, whole: Uint8Array | undefined) {
    this.#http = http;
    this.method = http.method;
    this.path = path;
    this.client = client;
    this.whole = whole;
  }

  get body(): BodySource {
    return this;
  }

  query(): string {
    const { url } = this.#http;
    return url.includes('?') ? new URL(url).search : '';
  }

  header(name: string): string | null {
    return this.#http.headers.get(name);
  }

  /**
   * Starts to read the body and cancels the previous reader. Otherwise bytes that a failed attempt left unread would
   * precede the connection's next request.
   */
  reader(): BodyReader | undefined {
    const { body } = this.#http;
    if (body === null) return undefined;
    try {
      this.#reader?.release();
    } catch {
      return undefined; // workerd throws while a read is in progress
    }
    if (body.locked) return undefined;
    this.#reader = new PieceReader(body);
    return this.#reader;
  }
}
