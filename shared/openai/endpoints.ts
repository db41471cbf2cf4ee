/**
 * The table of endpoints. Everything in which endpoints differ is a field here, so no endpoint needs its own handler.
 */
import { ApiError } from './api-errors.ts';
import { encodeUtf8 } from './byte-search.ts';
import { quoteForMessage } from './quote-for-message.ts';
import type { LengthKey } from './sampling-parameters.ts';

/** How a complete SSE stream marks its end. */
type Terminal =
  | { kind: 'done' }
  | { kind: 'event'; types: readonly string[] }
  /** The response is not SSE, and ends with its body. */
  | { kind: 'none' };

/** Which form the engine's token counts have; see token-usage.ts. */
export type UsageKind = 'openai' | 'responses' | 'anthropic' | 'images' | 'none';

export interface Endpoint {
  /** The id is used on the wire, so never renumber, only append. */
  readonly id: number;
  readonly method: 'POST' | 'GET' | 'DELETE';
  /** The path that clients call. `{id}` stands for the id of a stored response. */
  readonly path: string;
  /** The path at the engine, because vLLM and SGLang serve some endpoints at their root. */
  readonly enginePath: string;
  /** SGLang's path, if it differs. */
  readonly sglangPath?: string;
  /** Kind of the request's body. */
  readonly body: 'json' | 'multipart' | 'none';
  /** True if the response can be SSE. */
  readonly streams: boolean;
  /**
   * The type of a non-streaming response. Unlike JSON, `binary` data has no closing brace that shows that it is
   * complete.
   */
  readonly answer: 'json' | 'binary';
  /** True if the request takes a place in the engine's batch. */
  readonly batched: boolean;
  /** Bytes that are sent at intervals while a client waits for the first data of an SSE response. */
  readonly ping: Uint8Array;
  /** The form of an error that is sent after the response's head. */
  readonly inBandError: 'openai' | 'responses' | 'anthropic';
  readonly terminal: Terminal;
  readonly usage: UsageKind;
  /** True if the response is generated token by token, so that its length is not known in advance. */
  readonly generates: boolean;
  /** Keys of the body that limit the response's tokens. */
  readonly answerLimits: readonly LengthKey[];
  /** A header in which the endpoint's clients look for the request's id, in addition to `x-request-id`. */
  readonly requestIdHeader?: 'request-id';
  /** True if the engine accepts `stream_options.include_usage` at this endpoint. */
  readonly injectUsage: boolean;
  /** Media that are counted: seconds of the audio in the request or in the response, or images in the response. */
  readonly media?: 'uploaded_audio' | 'speech' | 'images';
  /** True for a WebSocket: request and response are message records, see realtime/message-records.ts. */
  readonly webSocket?: true;
}

const DONE: Terminal = { kind: 'done' };
const NONE: Terminal = { kind: 'none' };
const RESPONSES: Terminal = {
  kind: 'event',
  types: ['response.completed', 'response.failed', 'response.incomplete'],
};
const MESSAGES: Terminal = { kind: 'event', types: ['message_stop'] };
const IMAGES: Terminal = { kind: 'event', types: ['image_generation.completed', 'image_edit.completed'] };
const UPLOADED_AUDIO = {
  body: 'multipart',
  streams: true,
  terminal: DONE,
  usage: 'none',
  media: 'uploaded_audio',
} as const;
const PICTURES = { usage: 'images', media: 'images' } as const;
const ANTHROPIC = { requestIdHeader: 'request-id' } as const;

const JSON_UNARY = {
  method: 'POST',
  body: 'json',
  streams: false,
  answer: 'json',
  batched: true,
  /** An SSE comment: every parser skips it, and every proxy counts it as traffic. */
  ping: encodeUtf8(': ping\n\n'),
  inBandError: 'openai',
  terminal: NONE,
  usage: 'openai',
  generates: false,
  answerLimits: [],
  injectUsage: false,
} as const;

const v1 = (id: number, name: string) => ({ ...JSON_UNARY, id, path: `/v1/${name}`, enginePath: `/v1/${name}` });
const root = (id: number, name: string) => ({ ...v1(id, name), enginePath: `/${name}` });

export const ENDPOINTS: readonly Endpoint[] = [
  {
    ...v1(1, 'chat/completions'),
    generates: true,
    streams: true,
    terminal: DONE,
    injectUsage: true,
    answerLimits: ['max_tokens', 'max_completion_tokens'],
  },
  {
    ...v1(2, 'completions'),
    generates: true,
    streams: true,
    terminal: DONE,
    injectUsage: true,
    answerLimits: ['max_tokens'],
  },
  {
    ...v1(3, 'responses'),
    generates: true,
    streams: true,
    terminal: RESPONSES,
    usage: 'responses',
    inBandError: 'responses',
    answerLimits: ['max_output_tokens'],
  },
  v1(4, 'embeddings'),
  {
    ...v1(5, 'messages'),
    ...ANTHROPIC,
    generates: true,
    streams: true,
    answerLimits: ['max_tokens'],
    terminal: MESSAGES,
    usage: 'anthropic',
    inBandError: 'anthropic',
  },
  { ...root(6, 'rerank'), sglangPath: '/v1/rerank' },
  { ...root(7, 'score'), sglangPath: '/v1/score' },
  root(8, 'classify'),
  { ...root(9, 'tokenize'), usage: 'none', batched: false },
  { ...root(10, 'detokenize'), usage: 'none', batched: false },
  { ...v1(11, 'audio/speech'), answer: 'binary', usage: 'none', media: 'speech' },
  { ...v1(12, 'audio/transcriptions'), ...UPLOADED_AUDIO },
  { ...v1(13, 'audio/translations'), ...UPLOADED_AUDIO },
  { ...v1(14, 'messages/count_tokens'), ...ANTHROPIC, usage: 'none', batched: false },
  // Agents answer this endpoint; see shared/seal/attestation-evidence.ts.
  { ...v1(15, 'otela/evidence'), usage: 'none', batched: false },
  // 16 to 19 are those of stored responses, below.
  { ...v1(20, 'images/generations'), ...PICTURES, streams: true, terminal: IMAGES },
  { ...v1(21, 'images/edits'), ...PICTURES, body: 'multipart', streams: true, terminal: IMAGES },
  { ...v1(22, 'images/variations'), ...PICTURES, body: 'multipart' },
  { ...v1(23, 'moderations'), usage: 'none' },
  root(24, 'pooling'),
  // vLLM-Omni generates a video while its client waits. Jobs at /v1/videos are not offered, see docs/clients.md.
  { ...v1(26, 'videos/sync'), body: 'multipart', answer: 'binary', usage: 'none' },
];

const STORED = {
  ...JSON_UNARY,
  path: '/v1/responses/{id}',
  enginePath: '/v1/responses/{id}',
  body: 'none',
  batched: false,
  usage: 'none',
} as const;

const RETRIEVE: Endpoint = {
  ...STORED,
  id: 16,
  method: 'GET',
  streams: true,
  terminal: RESPONSES,
  inBandError: 'responses',
};

/**
 * Retrieves a response. Its tokens were not counted yet, because the engine generates it after the request for it has
 * ended (`background: true`). Clients use the path of RETRIEVE.
 */
export const RETRIEVE_UNCHARGED: Endpoint = { ...RETRIEVE, id: 19, usage: 'responses' };

/** Endpoints of a response that an engine stored. Only the engine that stored it can answer them. */
export const STORED_RESPONSE_ENDPOINTS: readonly Endpoint[] = [
  RETRIEVE,
  { ...STORED, id: 17, path: `${STORED.path}/cancel`, enginePath: `${STORED.enginePath}/cancel` },
  { ...STORED, id: 18, method: 'DELETE' },
];

/** A session over a WebSocket. The model is in the URL's query. */
export const REALTIME: Endpoint = {
  ...v1(25, 'realtime'),
  method: 'GET',
  answer: 'binary',
  generates: true,
  webSocket: true,
};

/** Paths that only allow GET. Their handler has handled GET before this table is used. */
const READ_ONLY = /^\/v1\/(?:models(?:\/.+)?|otela\/seal|registry\/(?:nodes|models|providers)(?:\/stream)?)$/s;

const byPath = new Map([...ENDPOINTS, REALTIME].map((endpoint) => [endpoint.path, endpoint]));
const byId = new Map(
  [...ENDPOINTS, ...STORED_RESPONSE_ENDPOINTS, RETRIEVE_UNCHARGED, REALTIME].map((endpoint) => [endpoint.id, endpoint]),
);

const STORED_RESPONSE = /^\/v1\/responses\/([^/]+)(\/cancel)?$/;
/** Ids that engines give to responses, and that are safe in a path. */
const RESPONSE_ID = /^[A-Za-z0-9_-]{1,128}$/;

/** The id of a stored response in a path; undefined if the path has none, or one that no engine gives. */
export function storedResponseId(path: string): string | undefined {
  const id = STORED_RESPONSE.exec(path)?.[1];
  return id !== undefined && RESPONSE_ID.test(id) ? id : undefined;
}

/** The endpoints at the path of a stored response. */
function storedEndpoints(path: string): readonly Endpoint[] {
  const found = STORED_RESPONSE.exec(path);
  return found === null ? [] : STORED_RESPONSE_ENDPOINTS.filter((one) => one.path === STORED.path + (found[2] ?? ''));
}

/**
 * @param path the URL's path without the query, matched exactly
 * @returns the endpoint; the allowed methods (405) if the method is wrong; undefined (404) if there is no such path
 */
export function findEndpoint(method: string, path: string): Endpoint | { methodNotAllowed: string[] } | undefined {
  const endpoint = byPath.get(path);
  if (endpoint === undefined) {
    if (READ_ONLY.test(path)) return { methodNotAllowed: ['GET', 'HEAD'] };
    const stored = storedEndpoints(path);
    if (stored.length === 0) return undefined;
    return stored.find((one) => one.method === method) ?? { methodNotAllowed: stored.map((one) => one.method) };
  }
  return endpoint.method === method ? endpoint : { methodNotAllowed: [endpoint.method] };
}

/**
 * The path that a client probably meant: clients often join a path to their base address wrongly, for example
 * `/v1//models`, `/v1/models/`, `/v1/v1/models` or `/models`. Undefined if no such path exists.
 */
function intendedPath(path: string): string | undefined {
  const meant = `/v1/${path
    .split('/')
    .filter((part) => part !== '' && part !== 'v1')
    .join('/')}`;
  return meant !== path && (byPath.has(meant) || READ_ONLY.test(meant)) ? meant : undefined;
}

export function pathNotFound(path: string): ApiError {
  const meant = intendedPath(path);
  const hint = meant === undefined ? '' : `; there is ${quoteForMessage(meant)}: correct the client's base address`;
  return new ApiError('not_found', `There is no ${quoteForMessage(path)} here${hint}.`);
}

/** @param engine kind of the engine, if known */
export function enginePathAt({ enginePath, sglangPath }: Endpoint, engine: string | undefined): string {
  return engine === 'sglang' && sglangPath !== undefined ? sglangPath : enginePath;
}

export function endpointById(id: number): Endpoint | undefined {
  return byId.get(id);
}
