import type { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import type { BodyReader, BodySource, ProxyRequest } from '../../shared/proxy/message.ts';
import { PieceReader } from '../../shared/upstream/piece-reader.ts';
import type { HttpRequest } from '../http/http-request.ts';

/** A request of this gateway's carriers, as the pipeline reads it. */
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

  header(name: string): string | null {
    return this.#http.headers.get(name);
  }

  /** Takes over from the reader before it: what an attempt that failed has left unread would stand before the connection's next request. */
  reader(): BodyReader | undefined {
    const { body } = this.#http;
    if (body === null) return undefined;
    try {
      this.#reader?.release();
    } catch {
      return undefined; // workerd, while it reads
    }
    if (body.locked) return undefined;
    this.#reader = new PieceReader(body);
    return this.#reader;
  }
}
