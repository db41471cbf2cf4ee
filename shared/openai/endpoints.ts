/** The one table of endpoints: everything that differs between them is a field here, so nothing else needs a handler each. */
import { utf8 } from './bytes.ts';
import type { LengthKey } from './sampling.ts';

/** How a complete SSE stream says that it is complete. */
type Terminal =
  | { kind: 'done' }
  | { kind: 'event'; types: readonly string[] }
  /** The answer is not SSE: its end is the end of the body. */
  | { kind: 'none' };

/** Where the engine's token counts stand: see `usage.ts`. */
export type UsageKind = 'openai' | 'responses' | 'anthropic' | 'none';

export interface Endpoint {
  /** Used on the wire: never renumber, only append. */
  readonly id: number;
  readonly method: 'POST';
  /** What the client calls. */
  readonly path: string;
  /** Where the engine serves it: vLLM and SGLang keep some at their root. */
  readonly enginePath: string;
  /** Where SGLang serves it, if elsewhere. */
  readonly sglangPath?: string;
  /** Of the request. */
  readonly body: 'json' | 'multipart' | 'none';
  /** Whether the answer can be SSE. */
  readonly streams: boolean;
  /** A unary answer that is not JSON has no closing brace to wait for. */
  readonly answer: 'json' | 'binary';
  /** Takes a place in the engine's batch. */
  readonly batched: boolean;
  /** Written while a client waits for the first data of an SSE answer. */
  readonly ping: Uint8Array;
  /** The form of an error after the head has gone out. */
  readonly inBandError: 'openai' | 'responses' | 'anthropic';
  readonly terminal: Terminal;
  readonly usage: UsageKind;
  /** Its answer is generated, token by token, of unknown length. */
  readonly generates: boolean;
  /** Keys of the body that bound the answer's tokens. */
  readonly answerLimits: readonly LengthKey[];
  /** Where else than in `x-request-id` its clients look for the request's id. */
  readonly requestIdHeader?: 'request-id';
  /** Whether the engine knows `stream_options.include_usage` here. */
  readonly injectUsage: boolean;
}

const DONE: Terminal = { kind: 'done' };
const NONE: Terminal = { kind: 'none' };
const RESPONSES: Terminal = {
  kind: 'event',
  types: ['response.completed', 'response.failed', 'response.incomplete'],
};
const MESSAGES: Terminal = { kind: 'event', types: ['message_stop'] };
const ANTHROPIC = { requestIdHeader: 'request-id' } as const;

const JSON_UNARY = {
  method: 'POST',
  body: 'json',
  streams: false,
  answer: 'json',
  batched: true,
  /** A comment: every SSE parser skips it, every proxy on the way counts it as traffic. */
  ping: utf8(': ping\n\n'),
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
  { ...v1(11, 'audio/speech'), answer: 'binary', usage: 'none' },
  { ...v1(12, 'audio/transcriptions'), body: 'multipart', streams: true, terminal: DONE, usage: 'none' },
  { ...v1(13, 'audio/translations'), body: 'multipart', streams: true, terminal: DONE, usage: 'none' },
  { ...v1(14, 'messages/count_tokens'), ...ANTHROPIC, usage: 'none', batched: false },
  // Answered by agents: see shared/seal/evidence.ts.
  { ...v1(15, 'otela/evidence'), usage: 'none', batched: false },
];

/** Only read: their handler has matched GET before this table is asked. */
const READ_ONLY = /^\/v1\/(?:models(?:\/.+)?|otela\/seal|registry\/(?:nodes|models|providers)(?:\/stream)?)$/s;

const byPath = new Map(ENDPOINTS.map((endpoint) => [endpoint.path, endpoint]));
const byId = new Map(ENDPOINTS.map((endpoint) => [endpoint.id, endpoint]));

/**
 * @param path as in the URL, without the query; matched exactly
 * @returns the endpoint, the methods that this path knows instead (405), or undefined (404)
 */
export function findEndpoint(method: string, path: string): Endpoint | { methodNotAllowed: string[] } | undefined {
  const endpoint = byPath.get(path);
  if (endpoint === undefined) return READ_ONLY.test(path) ? { methodNotAllowed: ['GET', 'HEAD'] } : undefined;
  return endpoint.method === method ? endpoint : { methodNotAllowed: [endpoint.method] };
}

/** @param engine what serves it, where that is known */
export function enginePathAt({ enginePath, sglangPath }: Endpoint, engine: string | undefined): string {
  return engine === 'sglang' && sglangPath !== undefined ? sglangPath : enginePath;
}

export function endpointById(id: number): Endpoint | undefined {
  return byId.get(id);
}
