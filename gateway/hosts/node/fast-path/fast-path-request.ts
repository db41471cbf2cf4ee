import { ClientDisconnect } from '../../../../shared/proxy/client-disconnect.ts';
import type { HttpRequest } from '../../../http/http-request.ts';
import type { FastPathHead } from './read-head.ts';

/** A request to a model whose body has arrived completely. */
export class FastPathRequest implements HttpRequest {
  readonly method = 'POST';
  readonly path: string;
  readonly body = null;
  readonly whole: Uint8Array;
  readonly offloads = true;
  readonly client = new ClientDisconnect();
  readonly headers: { get(name: string): string | null };
  readonly accepted: (holder: string) => void;
  readonly #scheme: string;
  #controller: AbortController | undefined;

  /** @param accepted called with the key's owner when the request's key is valid; see HttpRequest */
  constructor({ path, headers, body }: FastPathHead, scheme: 'http' | 'https', accepted: (holder: string) => void) {
    this.path = path;
    this.whole = body;
    this.headers = { get: (name) => headers.get(name) ?? null };
    this.accepted = accepted;
    this.#scheme = scheme;
  }

  get url(): string {
    return `${this.#scheme}://${this.headers.get('host')}${this.path}`;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      const controller = new AbortController();
      this.client.on(() => controller.abort());
      this.#controller = controller;
    }
    return this.#controller.signal;
  }

  arrayBuffer(): Promise<ArrayBuffer> {
    return Promise.resolve(new Uint8Array(this.whole).buffer);
  }
}
