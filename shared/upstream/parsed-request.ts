import { type Edit, usageEdits } from '../openai/edits.ts';
import type { Endpoint } from '../openai/endpoints.ts';
import { ApiError } from '../openai/errors.ts';
import { scanMultipart } from '../openai/multipart.ts';
import type { BudgetAt } from '../openai/reasoning.ts';
import { type Sampling, samplingOf } from '../openai/sampling.ts';
import { requireModel, type Span, scanJson } from '../openai/scan.ts';
import type { HeaderList } from '../wire/headers.ts';
import type { AttemptBody } from './attempt.ts';
import type { OpaqueBody } from './opaque-body.ts';

export type RequestBody =
  | { kind: 'kept'; bytes: Uint8Array }
  | { kind: 'opaque'; opaque: OpaqueBody; length: number | undefined };

/** Where a model stands in a body. */
type ModelAt = Pick<Span, 'start' | 'end'>;

/** What had to be known of a body. */
export interface RequestFields {
  model: string;
  streaming: boolean;
  /** Replacements that make a streaming engine count. */
  edits: Edit[];
  /** Strings of the body's `metadata`. */
  metadata: Readonly<Record<string, string>>;
  /** Where the body names the model; absent where it cannot be given another one. */
  modelAt?: ModelAt;
  /** Where the body may say how long a model thinks. */
  budgetAt?: BudgetAt;
  /** Names the conversation: `prompt_cache_key`, else `user`. */
  affinity?: string | undefined;
  /** How the answer is to be drawn, where the body says so. */
  sampling?: Sampling;
  /** The model is what a header says: the body was not read. */
  unseen: boolean;
  /** It cannot be read: it is sealed to these nodes. */
  sealed?: SealedFor;
}

/** Whom a request is sealed to. */
export interface SealedFor {
  /** What every one of them needs of its headers. */
  headers: HeaderList;
  /** The content key for each, by the name of its key. */
  envelopes: ReadonlyMap<string, string>;
}

/** A request's body and what had to be known of it. */
export interface ParsedRequest extends RequestFields {
  body: RequestBody;
  /** Reads the body, where nothing of it had to be known before a node was found. Idempotent. */
  fill?: () => Promise<void>;
  /** Lets go of the body and of its share of the budget: no other attempt needs it any more. Idempotent. */
  release(): void;
}

const NO_METADATA: RequestFields['metadata'] = {};

/** @throws ApiError 400 */
export function parseBody(bytes: Uint8Array, contentType: string, endpoint: Endpoint): RequestFields {
  const known = { edits: [], metadata: NO_METADATA, unseen: false };
  if (endpoint.body === 'multipart') {
    const scan = scanMultipart(bytes, contentType);
    return { ...known, model: requireModel(scan), streaming: scan.stream && endpoint.streams };
  }
  const scan = scanJson(bytes);
  return {
    ...known,
    model: requireModel(scan),
    streaming: scan.stream && endpoint.streams,
    edits: usageEdits(scan, endpoint),
    metadata: scan.metadata ?? NO_METADATA,
    ...(scan.model !== undefined && { modelAt: { start: scan.model.start, end: scan.model.end } }),
    affinity: scan.promptCacheKey ?? scan.user,
    ...(scan.sampling !== undefined && { sampling: samplingOf(scan.sampling, endpoint.answerLimits) }),
    // Other endpoints of engines refuse what they do not know.
    ...(endpoint.injectUsage && { budgetAt: { topEnd: scan.topEnd, ...(scan.thinking && { value: scan.thinking }) } }),
  };
}

/** A compressed body cannot be read here, and engines take none. @throws ApiError 415 (RFC 9110 §15.5.16) */
export function requireIdentityEncoding(contentEncoding: string | null | undefined): void {
  if (!contentEncoding || contentEncoding.toLowerCase() === 'identity') return;
  const message = `The body is compressed (content-encoding: ${contentEncoding.slice(0, 64)}); send it as it is.`;
  throw new ApiError('unsupported_media_type', message, { headers: { 'accept-encoding': 'identity' } });
}

/** Of an unread body. `says`: the request's `x-otela-stream`. */
export function opaqueFields(endpoint: Endpoint, model: string, says: unknown): RequestFields {
  return { model, streaming: endpoint.streams && says === '1', edits: [], metadata: NO_METADATA, unseen: true };
}

/** Another attempt can have the whole body. */
export function isRepeatable({ body }: Pick<ParsedRequest, 'body'>): boolean {
  return body.kind === 'kept' || body.opaque.replayable;
}

/** The body for one attempt, from its start; null where none can have it any more. */
export function bodyOf({ body }: Pick<ParsedRequest, 'body'>): AttemptBody {
  if (body.kind === 'kept') return body.bytes;
  return body.opaque.replayable ? body.opaque.open() : null;
}

/** Why the client sent no more of a body that streams. */
export function bodyFailure({ body }: Pick<ParsedRequest, 'body'>): ApiError | undefined {
  return body.kind === 'opaque' ? body.opaque.failure : undefined;
}
