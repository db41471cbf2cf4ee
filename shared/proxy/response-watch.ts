/** Watches the response to a request for what the host must keep of it: the id of a response that the engine stored. */
import type { ParsedRequest } from '../attempts/parsed-request.ts';
import { decodeUtf8 } from '../openai/byte-search.ts';
import { type Endpoint, RETRIEVE_UNCHARGED } from '../openai/endpoints.ts';
import { JsonWatcher } from '../openai/json-watcher.ts';
import type { Host } from './proxy-host.ts';
import type { StoredResponses } from './stored-response-index.ts';

/** The beginning of a response in which its id is searched. Engines write the id first. */
const HEAD_BYTES = 4096;

/**
 * A response's id in JSON or in the first event of a stream. Quotes inside texts are escaped, so no text matches. Ids
 * of items begin with other letters.
 */
const ID = /"id"\s*:\s*"(resp_[A-Za-z0-9_-]{1,120})"/;
const ENDED = /^"(?:completed|failed|incomplete|cancelled)"$/;

interface Watched<C> {
  endpoint: Endpoint;
  parsed: ParsedRequest;
  caller: C;
}

export interface ResponseStart {
  status: number;
  session: string;
  model: string;
  isStream: boolean;
}

export class ResponseWatch<C> {
  readonly #watched: Watched<C>;
  readonly #responses: StoredResponses<C>;
  readonly #json = new JsonWatcher();
  #id: string | undefined;
  #start: ResponseStart | undefined;

  private constructor(watched: Watched<C>, responses: StoredResponses<C>) {
    this.#watched = watched;
    this.#responses = responses;
  }

  /** Undefined if the host keeps nothing of the response. */
  static of<C>(watched: Watched<C>, host: Pick<Host<C>, 'responses'>): ResponseWatch<C> | undefined {
    const { endpoint, parsed } = watched;
    const isCreate = endpoint.path === '/v1/responses' && !parsed.unseen && parsed.unstored !== true;
    if (!(isCreate || endpoint.body === 'none')) return undefined;
    const { responses } = host;
    return responses && new ResponseWatch(watched, responses);
  }

  /** True if the response must be read to its end here. */
  get untilEnd(): boolean {
    const { endpoint, parsed } = this.#watched;
    return endpoint === RETRIEVE_UNCHARGED || parsed.background === true;
  }

  /** @param first the first bytes of the body, if there are any */
  begin(start: ResponseStart, first: Uint8Array | undefined): void {
    if (start.status >= 300) return;
    const responses = this.#responses;
    const { endpoint, parsed, caller } = this.#watched;
    this.#start = start;
    if (endpoint.body === 'none') {
      this.#id = parsed.target?.split('?')[0];
      if (endpoint.method === 'DELETE' && this.#id !== undefined) responses.remove(caller, this.#id);
      return;
    }
    this.#id = ID.exec(decodeUtf8(first?.subarray(0, HEAD_BYTES) ?? new Uint8Array(0)))?.[1];
    if (this.#id === undefined) return;
    const { session, model } = start;
    responses.add(caller, this.#id, { session, model, charged: parsed.background !== true });
  }

  pass(bytes: Uint8Array): void {
    if (this.untilEnd && this.#start?.isStream === false) this.#json.push(bytes);
  }

  /** Call at the complete end of the response. */
  end(): void {
    if (!this.untilEnd || this.#id === undefined) return;
    const status = this.#json.value('status');
    const ended = this.#start?.isStream === true || (status !== undefined && ENDED.test(decodeUtf8(status).trim()));
    if (ended) this.#responses.charged(this.#watched.caller, this.#id);
  }
}
