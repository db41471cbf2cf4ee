/** One request that came by the inlet. */
import { ClientDisconnect } from '../../shared/proxy/client-disconnect.ts';
import type { HttpRequest } from '../http.ts';

const decoder = new TextDecoder();

/** `head` as the public socket let it in: one request line and at most a hundred headers, all ASCII. */
export class InletRequest implements HttpRequest {
  readonly method = 'POST';
  readonly carrierRefuses = true;
  readonly path: string;
  readonly headers: Headers;
  /** All of it is here: see `arrayBuffer`. */
  readonly body = null;
  readonly #bytes: ArrayBuffer;
  readonly leaving = new ClientDisconnect();
  #controller: AbortController | undefined;

  constructor(head: Uint8Array, body: Uint8Array) {
    const [request = '', ...lines] = decoder.decode(head).split('\r\n');
    const [, path = ''] = request.split(' ');
    this.path = path;
    this.headers = new Headers(lines);
    this.#bytes = body.slice().buffer as ArrayBuffer;
  }

  get url(): string {
    return `http://${this.headers.get('host')}${this.path}`;
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.leaving.left) this.#controller.abort();
    return this.#controller.signal;
  }

  async arrayBuffer(): Promise<ArrayBuffer> {
    return this.#bytes;
  }

  /** Its client left. */
  leave(): void {
    this.leaving.leave();
    this.#controller?.abort();
  }
}

/** What the runtime's would cost several times: it copies each into memory of its own and checks it. */
class Headers {
  readonly #values = new Map<string, string>();

  constructor(lines: readonly string[]) {
    for (const line of lines) {
      const colon = line.indexOf(':');
      const name = line.slice(0, colon).toLowerCase();
      const value = line.slice(colon + 1).trim();
      const before = this.#values.get(name);
      this.#values.set(name, before === undefined ? value : `${before}, ${value}`);
    }
  }

  get(name: string): string | null {
    return this.#values.get(name.toLowerCase()) ?? null;
  }
}
