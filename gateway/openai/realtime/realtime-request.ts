import { decodeUtf8, encodeUtf8 } from '../../../shared/openai/byte-search.ts';
import { encodeRecord, type MessageRecord } from '../../../shared/openai/realtime/message-records.ts';
import { keyInProtocols } from '../../../shared/openai/realtime/realtime-key.ts';
import { messageForEngine } from '../../../shared/openai/realtime/realtime-model.ts';
import type { ClientDisconnect } from '../../../shared/proxy/client-disconnect.ts';
import type { BodySource, ProxyRequest } from '../../../shared/proxy/proxy-http-types.ts';
import type { ClientWebSocket } from '../../http/client-websocket.ts';
import type { HttpRequest } from '../../http/http-request.ts';
import { takeSessionPlace } from './session-places.ts';

/** A client's WebSocket as a request of the pipeline. Its body is the client's messages, as records. */
export class RealtimeRequest implements ProxyRequest {
  readonly method = 'GET';
  readonly path: string;
  readonly webSocket: { readonly model: string };
  readonly client: ClientDisconnect;
  readonly body: BodySource;
  /** The same request for the gateway's host. */
  readonly http: HttpRequest;
  /** The model that the client asked for. */
  readonly model: string;
  /** Called if a message names another model. The message is not sent on. The next one is read when this resolves. */
  onForeignModel = (): Promise<void> => Promise.resolve();
  /** The model's name at the node, once it is known. */
  served: string | undefined;
  readonly #url: URL;
  readonly #socket: ClientWebSocket;
  #release: (() => void) | undefined;

  constructor(raw: Request, socket: ClientWebSocket, client: ClientDisconnect) {
    this.#url = new URL(raw.url);
    this.path = this.#url.pathname;
    this.model = this.#url.searchParams.get('model') ?? '';
    this.webSocket = { model: this.model };
    this.client = client;
    this.#socket = socket;
    const reader = { read: () => this.#read(), cancel: () => Promise.resolve(), release: () => {} };
    this.body = { whole: undefined, reader: () => reader };
    const aborts = new AbortController();
    client.on(() => aborts.abort());
    this.http = {
      method: this.method,
      url: raw.url,
      body: null,
      signal: aborts.signal,
      arrayBuffer: () => Promise.resolve(new ArrayBuffer(0)),
      headers: { get: (name) => headerOf(raw, name) },
      client,
      accepted: (holder) => {
        this.#release ??= takeSessionPlace(holder);
      },
      cf: (raw as HttpRequest).cf,
    };
  }

  query(): string {
    return this.#url.search;
  }

  header(name: string): string | null {
    return this.http.headers.get(name);
  }

  /** Call when the session is over, or was refused. Idempotent. */
  over(): void {
    this.#release?.();
    this.#release = () => {};
    this.client.over();
  }

  async #read(): Promise<Uint8Array | undefined> {
    for (;;) {
      const record = await this.#socket.next();
      if (record === undefined) return undefined;
      const allowed = record.kind === 'text' ? this.#checked(record) : record;
      if (allowed !== undefined) return encodeRecord(allowed.kind, allowed.bytes);
      await this.onForeignModel();
    }
  }

  #checked(record: MessageRecord): MessageRecord | undefined {
    const text = decodeUtf8(record.bytes);
    const checked = messageForEngine(text, this.model, this.served ?? this.model);
    if (checked === text) return record;
    return checked === undefined ? undefined : { kind: 'text', bytes: encodeUtf8(checked) };
  }
}

function headerOf({ headers }: Request, name: string): string | null {
  // A page of any site can open a WebSocket, and the browser adds the cookies. So only keys count.
  if (name === 'cookie') return null;
  const given = headers.get(name);
  if (name !== 'authorization' || given !== null) return given;
  const key = keyInProtocols(headers.get('sec-websocket-protocol'));
  return key === undefined ? null : `Bearer ${key}`;
}
