import type { Readable } from 'node:stream';
import { type Dispatcher, errors, Pool } from 'undici';
import { type Endpoint, enginePathAt } from '../../shared/openai/endpoints.ts';
import { RESPONSE_TARGET_HEADER, responsePathAt } from '../../shared/openai/stored-response-target.ts';
import { translatedApi } from '../../shared/openai/translation/translation.ts';
import type { OpenFrame, ResetCode } from '../../shared/wire/frames.ts';
import { type EngineTarget, loopbackAddress } from '../engine/engine-address.ts';
import { DisaggregatedCall, isDisaggregated } from './disaggregated-call.ts';
import type { EngineCall, EngineConnection, EngineEvents } from './engine-call.ts';
import { engineHeaders } from './engine-headers.ts';
import { BodyBudget, PairState, PrefillEngines } from './prefill-engines.ts';
import { RawCall } from './raw-http/raw-call.ts';
import { RawConnections } from './raw-http/raw-connections.ts';
import { requestHead } from './raw-http/request-head.ts';
import { RealtimeCall } from './realtime-call.ts';
import { UsageOptions } from './stream-options-retry.ts';
import { TranslatedCall } from './translated-call.ts';

/** uvicorn, under vLLM and SGLang, closes idle connections after 5 s. This client closes them before that. */
const KEEP_ALIVE_MS = 4_000;

/**
 * A broken pooled connection counts as closed by the engine before the request arrived if it broke within this time and
 * before any response. Even a busy machine notices the close of an idle connection within this time.
 */
const STALE_MS = 2_000;

/**
 * The HTTP connections to one engine. Requests with a whole body to an engine on this machine are written to its socket
 * directly, which costs less processor time than undici. Undici sends all other requests.
 */
export class EngineClient implements EngineConnection {
  readonly target: EngineTarget;
  /** Whether the engine accepts the `stream_options` that gateways add. */
  readonly usage = new UsageOptions();
  readonly #raw: { host: string; connections: RawConnections } | undefined;
  readonly #pool: Pool;
  /**
   * Opens a new connection for each request with a streamed body. Such a body is not kept, so it could not be sent
   * again if a pooled connection turned out to be closed.
   */
  readonly #fresh: Pool;
  readonly #prefills: PrefillEngines | undefined;
  readonly #translated = new BodyBudget();
  readonly #onReceived: () => void;
  /** Number of connections opened so far. */
  #connections = 0;

  /** @param onReceived called with every chunk of a response's body */
  constructor(target: EngineTarget, log: (line: string) => void = () => {}, onReceived: () => void = () => {}) {
    this.target = target;
    this.#onReceived = onReceived;
    const budget = new BodyBudget();
    const pairs = target.prefills?.map((one) => {
      const prefill = new EngineClient({ ...one, ...engineOf(target) }, log, onReceived);
      return new PairState({ target: one, prefill, log, budget });
    });
    this.#prefills = pairs && new PrefillEngines(pairs);
    const local = loopbackAddress(target.origin);
    this.#raw = local && { host: new URL(target.origin).host, connections: new RawConnections(local, KEEP_ALIVE_MS) };
    // Turn undici's timeouts off. The attempt has its own timeouts for stalls, which are configurable per model.
    const patient = { headersTimeout: 0, bodyTimeout: 0 };
    const kept = { keepAliveTimeout: KEEP_ALIVE_MS, keepAliveMaxTimeout: KEEP_ALIVE_MS };
    this.#pool = new Pool(target.origin, { pipelining: 1, ...kept, ...patient });
    this.#fresh = new Pool(target.origin, { pipelining: 0, ...patient });
    this.#pool.on('connect', () => {
      this.#connections++;
    });
  }

  /** @param length bytes of `content`; undefined: chunked */
  call(
    open: OpenFrame,
    endpoint: Endpoint,
    content: Buffer | Readable,
    length: number | undefined,
    events: EngineEvents,
  ): EngineCall {
    const api = translatedApi(endpoint.path);
    if (api !== undefined && this.target.translates?.includes(api) === true)
      return new TranslatedCall({ client: this, api, budget: this.#translated, open, endpoint, events }).start(content);
    const pair = isDisaggregated(endpoint) ? this.#prefills?.choose() : undefined;
    if (pair === undefined) return this.send(open, endpoint, content, length, events);
    return new DisaggregatedCall({ decode: this, pair, open, endpoint, events }).start(content);
  }

  /** @param length bytes of `content`; undefined: chunked */
  send(
    open: OpenFrame,
    endpoint: Endpoint,
    content: Buffer | Readable,
    length: number | undefined,
    events: EngineEvents,
  ): EngineCall {
    if (endpoint.webSocket === true) return new RealtimeCall({ target: this.target, open, endpoint, content, events });
    const bodyless = endpoint.body === 'none';
    const response = open.headers.find(([name]) => name === RESPONSE_TARGET_HEADER)?.[1];
    const local = bodyless
      ? responsePathAt(endpoint, this.target.engine, response)
      : enginePathAt(endpoint, this.target.engine);
    if (local === undefined) return failedCall(events, 'the request names no stored response');
    const path = this.target.pathPrefix + local;
    const { method } = endpoint;
    const body = bodyless ? null : content;
    const raw = this.#sendRaw({ open, method, path, body, length }, events);
    if (raw !== undefined) return raw;
    const headers = this.#headers(open);
    if (length !== undefined && !bodyless) headers.push('content-length', String(length));
    const options: Dispatcher.DispatchOptions = { path, method, headers, body };
    const pool = body === null || Buffer.isBuffer(body) ? this.#pool : this.#fresh;
    const call = new Call(pool, options, events, { connections: () => this.#connections, heard: this.#onReceived });
    call.dispatch();
    return call;
  }

  /** Undefined: the request is for undici. */
  #sendRaw({ open, method, path, body, length }: OutgoingRequest, events: EngineEvents): EngineCall | undefined {
    if (this.#raw === undefined || !Buffer.isBuffer(body) || (length ?? body.length) !== body.length) return undefined;
    const { host, connections } = this.#raw;
    const head = requestHead({ method, path, host, headers: this.#headers(open), bodyLength: body.length });
    if (head === undefined) return undefined;
    return new RawCall({ connections, head, body, events, onReceived: this.#onReceived, staleMs: STALE_MS });
  }

  #headers(open: OpenFrame): string[] {
    const headers: string[] = [];
    for (const [name, value] of open.headers) if (name !== RESPONSE_TARGET_HEADER) headers.push(name, value);
    if (!headers.includes('x-request-id')) headers.push('x-request-id', open.requestId);
    // Without this header a server may choose a compression (RFC 9110 §12.5.3), and no program between the engine and
    // the client would undo it.
    headers.push('accept-encoding', 'identity');
    if (this.target.key !== undefined) headers.push('authorization', `Bearer ${this.target.key}`);
    return headers;
  }

  async close(): Promise<void> {
    this.#raw?.connections.close();
    await Promise.all([this.#pool.destroy(), this.#fresh.destroy(), this.#prefills?.close()]);
  }
}

interface OutgoingRequest {
  open: OpenFrame;
  method: string;
  path: string;
  body: Buffer | Readable | null;
  length: number | undefined;
}

const engineOf = ({ engine }: EngineTarget) => (engine === undefined ? {} : { engine });

/** One request to the engine. It is repeated once if its pooled connection turns out to be closed. */
class Call implements EngineCall, Dispatcher.DispatchHandler {
  readonly #pool: Pool;
  readonly #options: Dispatcher.DispatchOptions;
  readonly #events: EngineEvents;
  readonly #connections: () => number;
  readonly #onReceived: () => void;
  #connectionsBefore = 0;
  #controller: Dispatcher.DispatchController | undefined;
  #aborted = false;
  #answered = false;
  #repeated = false;
  #dispatchedAt = 0;

  constructor(
    pool: Pool,
    options: Dispatcher.DispatchOptions,
    events: EngineEvents,
    { connections, heard: onReceived }: { connections(): number; heard(): void },
  ) {
    this.#pool = pool;
    this.#connections = connections;
    this.#onReceived = onReceived;
    this.#options = options;
    this.#events = events;
  }

  dispatch(): void {
    this.#dispatchedAt = performance.now();
    this.#connectionsBefore = this.#connections();
    this.#pool.dispatch(this.#options, this);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#aborted) controller.abort(new Error('the client disconnected'));
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    if (status < 200) return; // 100 Continue and other interim responses
    this.#answered = true;
    // RFC 9110 §15 defines no status above 599. In a HEAD frame such a status would break the protocol, and so end the
    // socket and all requests on it.
    if (status > 599) return controller.abort(new Error(`the engine answered with status ${status}`));
    this.#events.onHead(status, engineHeaders(headerPairs(headers)), headers['content-length'] !== undefined);
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#onReceived();
    this.#events.onData(chunk);
  }

  onResponseEnd(): void {
    this.#events.onEnd();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#aborted) return;
    if (this.#isStale(error)) {
      this.#repeated = true;
      return this.dispatch();
    }
    this.#events.onError(codeOf(error), error.message);
  }

  #isStale(error: Error): boolean {
    if (this.#answered || this.#repeated || !isClosing(error)) return false;
    // If the connection was new, the engine may have read the whole request and begun the work before it closed the
    // connection. A repeated request would then do the work twice.
    if (this.#connections() !== this.#connectionsBefore) return false;
    const { body } = this.#options;
    return (body === null || Buffer.isBuffer(body)) && performance.now() - this.#dispatchedAt < STALE_MS;
  }

  pause(): void {
    this.#controller?.pause();
  }

  resume(): void {
    this.#controller?.resume();
  }

  abort(): void {
    this.#aborted = true;
    this.#controller?.abort(new Error('the client disconnected'));
  }
}

/**
 * True for the errors that a connection reports if the engine closed it: a reset if our request had already arrived at
 * the engine, otherwise an end of the stream.
 */
function isClosing(error: Error): boolean {
  return (
    error instanceof errors.SocketError || ('code' in error && (error.code === 'ECONNRESET' || error.code === 'EPIPE'))
  );
}

function headerPairs(headers: Record<string, string | string[] | undefined>): [string, string][] {
  return Object.entries(headers).flatMap(([name, value]) => {
    const values = Array.isArray(value) ? value : [value];
    return values.filter((one) => one !== undefined).map((one): [string, string] => [name, one]);
  });
}

/** The call of a request that no honest gateway sends. */
function failedCall(events: EngineEvents, why: string): EngineCall {
  queueMicrotask(() => events.onError('failed', why));
  return { pause: () => {}, resume: () => {}, abort: () => {} };
}

const UNREACHABLE: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ENOENT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'UND_ERR_CONNECT_TIMEOUT',
]);

function codeOf(error: Error): ResetCode {
  const code = 'code' in error ? String(error.code) : '';
  return UNREACHABLE.has(code) ? 'engine_unreachable' : 'engine_closed';
}
