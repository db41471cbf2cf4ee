/** JSON requests to a gateway, with a key, a time limit and a size limit. */
import { readTextAtMost } from '../shared/collections/read-at-most.ts';
import { gatewayErrorCode, openAiErrorMessage } from '../shared/openai/error-message.ts';
import { errorText } from '../shared/text/error-text.ts';
import { parseJson, tryParseJson } from '../shared/text/parse-json.ts';
import { AdaptiveTimeout, type TimeoutBounds } from '../shared/timing/adaptive-timeout.ts';

/**
 * Bounds of the time limit of a request. A gateway that has not answered after ten seconds counts as unreachable,
 * unless earlier answers took longer. Even a slow machine answers within two minutes.
 */
const ANSWER: TimeoutBounds = { leastMs: 10_000, mostMs: 120_000 };
/** Maximum size of an answer: 4,096 nodes of 16 KiB. */
const ANSWER_MAX_BYTES = 64 * 1024 * 1024;
/** If a body is not JSON, such as a proxy's page, an error message quotes at most this many characters of it. */
const EXCERPT_MAX = 200;

/** The gateway, or a proxy in front of it, answered with an error status. */
export class GatewayRefusalError extends Error {
  override readonly name = 'GatewayRefusalError';
  readonly status: number;
  /**
   * The code of the gateway's error. Undefined if a proxy answered. A proxy's status says nothing about the gateway's
   * state.
   */
  readonly code: string | undefined;

  constructor(status: number, code: string | undefined, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** No complete answer arrived, or the answer is not JSON. */
export class GatewayUnreachableError extends Error {
  override readonly name = 'GatewayUnreachableError';
}

/**
 * The part of `fetch` that is used here. The types of undici's `fetch` and of Node's differ, and both are assignable to
 * this type.
 */
type GatewayFetch = (
  url: URL,
  init: {
    method: string;
    headers: Record<string, string>;
    redirect: 'error';
    signal: AbortSignal;
    body?: string;
  },
) => Promise<{ status: number; ok: boolean; body: AsyncIterable<Uint8Array> | null }>;

interface GatewayClientOptions {
  url: string;
  /**
   * The API key, or a function that returns it; undefined: the route needs no key. The function is called for each
   * request, so that a replaced key is used without a restart.
   */
  key?: string | (() => string) | undefined;
  fetch?: GatewayFetch;
  timeout?: TimeoutBounds;
  maxBytes?: number;
}

export class GatewayClient {
  readonly #options: GatewayClientOptions;
  readonly #base: URL;
  readonly #answers: AdaptiveTimeout;

  constructor(options: GatewayClientOptions) {
    this.#options = options;
    this.#base = new URL(options.url);
    this.#answers = new AdaptiveTimeout(options.timeout ?? ANSWER);
  }

  get origin(): string {
    return this.#base.origin;
  }

  /**
   * All four methods throw GatewayRefusalError, GatewayUnreachableError, and what the option `key` throws if it is a
   * function.
   */
  async get(path: string): Promise<unknown> {
    return this.#parse(path, await this.#send('GET', path));
  }

  async post(path: string, body: unknown, signal?: AbortSignal): Promise<unknown> {
    return this.#parse(path, await this.#send('POST', path, body, signal));
  }

  async put(path: string, body: unknown): Promise<void> {
    await this.#send('PUT', path, body);
  }

  async delete(path: string): Promise<void> {
    await this.#send('DELETE', path);
  }

  async #send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<string> {
    const { key, maxBytes = ANSWER_MAX_BYTES, fetch = globalThis.fetch } = this.#options;
    const secret = typeof key === 'function' ? key() : key;
    const once = async (ms: number) => {
      const limit = AbortSignal.timeout(ms);
      const response = await fetch(new URL(path, this.#base), {
        method,
        headers: {
          ...(secret === undefined ? {} : { authorization: `Bearer ${secret}` }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        redirect: 'error', // a redirect would send the key to another server
        signal: signal === undefined ? limit : AbortSignal.any([signal, limit]),
      });
      const text = await readTextAtMost(response.body, maxBytes).catch((cause: unknown) => {
        throw new GatewayUnreachableError(`the response to ${path} broke off: ${causeText(cause)}`, { cause });
      });
      return { ok: response.ok, status: response.status, text };
    };
    const { ok, status, text } = await this.#answers
      .bound(() => performance.now(), once)
      .catch((cause: unknown) => {
        if (cause instanceof GatewayUnreachableError) throw cause;
        throw new GatewayUnreachableError(`${this.origin} does not answer ${path}: ${causeText(cause)}`, { cause });
      });
    if (text === undefined) throw new GatewayUnreachableError(`${path} returned more than ${maxBytes} bytes`);
    if (ok) return text;
    const said = openAiErrorMessage(text) ?? (tryParseJson(text) === undefined ? text.slice(0, EXCERPT_MAX) : '');
    // Keeps only printable characters, because an operator reads the message on a terminal.
    const why = said.replace(/[^\x20-\x7e]+/g, ' ').trim();
    const message = `${this.origin}${path} answers ${status}${why === '' ? '' : `: ${why}`}`;
    throw new GatewayRefusalError(status, gatewayErrorCode(text), message);
  }

  #parse(path: string, text: string): unknown {
    try {
      return parseJson(text);
    } catch (cause) {
      throw new GatewayUnreachableError(`${this.origin}${path} did not return JSON`, { cause });
    }
  }
}

/** Text of the cause of a failed `fetch`. The error's own message is only "fetch failed". */
export function causeText(error: unknown): string {
  const reason = errorText(error instanceof Error && error.cause instanceof Error ? error.cause : error);
  return reason.includes('wrong version number')
    ? 'it does not use TLS; is the URL http://, or the port wrong?'
    : reason;
}
