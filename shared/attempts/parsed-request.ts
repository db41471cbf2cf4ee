import { ApiError } from '../openai/api-errors.ts';
import { type Edit, usageEdits } from '../openai/body-edits.ts';
import type { Endpoint } from '../openai/endpoints.ts';
import { type Sampling, samplingOf } from '../openai/sampling-parameters.ts';
import {
  type BudgetPosition,
  type ByteSpan,
  requireModel,
  scanJson,
  type Utf8Check,
} from '../openai/scan-json-body.ts';
import { scanMultipart } from '../openai/scan-multipart.ts';
import type { HeaderList } from '../wire/header-codec.ts';
import type { AttemptBody } from './attempt-request.ts';
import type { OpaqueBody } from './opaque-body.ts';

export type ParsedBody =
  | { kind: 'kept'; bytes: Uint8Array }
  | { kind: 'opaque'; opaque: OpaqueBody; length: number | undefined };

/** Position of the model's name in a body. */
type ModelAt = Pick<ByteSpan, 'start' | 'end'>;

/** The fields of a body that the request pipeline reads. */
export interface RequestFields {
  model: string;
  streaming: boolean;
  /** Edits of the body that make a streaming engine report its usage. */
  edits: Edit[];
  /** String values of the body's `metadata`. */
  metadata: Readonly<Record<string, string>>;
  /** Position of the model's name in the body; absent if the name cannot be replaced. */
  modelAt?: ModelAt;
  /** True if the model is in the URL. The node then gets its own name for the model in a header. */
  inUrl?: true;
  /** Position in the body for a limit of reasoning tokens. */
  budgetAt?: BudgetPosition;
  promptCacheKey?: string | undefined;
  user?: string | undefined;
  /** Id of the stored response that the request continues. */
  previousResponseId?: string | undefined;
  /** True if the body tells the engine not to store the response. */
  unstored?: boolean | undefined;
  /** True if the engine generates the response after the request for it has ended. */
  background?: boolean | undefined;
  /** Sampling parameters, if the body sets any. */
  sampling?: Sampling;
  /** True if the body was not read; then the model comes from a header. */
  unseen: boolean;
  /** The nodes that can decrypt the body, if it is sealed. */
  sealed?: SealRecipients;
}

export interface SealRecipients {
  /** Headers that every recipient needs to decrypt the request. */
  headers: HeaderList;
  /** The encrypted content key for each recipient, by the id of its key. */
  envelopes: ReadonlyMap<string, string>;
}

/** A request's body and its parsed fields. */
export interface ParsedRequest extends RequestFields {
  body: ParsedBody;
  /** Session of the only node that can answer the request, because it stored a response. */
  storedAt?: string;
  /** Id of the stored response, and the query, for the engine; see stored-response-target.ts. */
  target?: string;
  /** Reads the body, if it was not needed to find a node. Absent if the body was read or is a stream. Idempotent. */
  fill?: () => Promise<void>;
  /** Releases the body and its share of the memory budget, when no further attempt needs it. Idempotent. */
  release(): void;
}

const NO_METADATA: RequestFields['metadata'] = {};

/** Reads the pipeline's fields from a body. `isUtf8`: see `scanJson`. @throws ApiError 400 */
export function parseBody(
  bytes: Uint8Array,
  contentType: string,
  endpoint: Endpoint,
  isUtf8?: Utf8Check,
): RequestFields {
  const known = { edits: [], metadata: NO_METADATA, unseen: false };
  if (endpoint.body === 'multipart') {
    const scan = scanMultipart(bytes, contentType);
    return { ...known, model: requireModel(scan), streaming: scan.stream && endpoint.streams };
  }
  const scan = scanJson(bytes, isUtf8);
  return {
    ...known,
    model: requireModel(scan),
    streaming: scan.stream && endpoint.streams,
    edits: usageEdits(scan, endpoint),
    metadata: scan.metadata ?? NO_METADATA,
    ...(scan.model !== undefined && { modelAt: { start: scan.model.start, end: scan.model.end } }),
    promptCacheKey: scan.promptCacheKey,
    user: scan.user,
    previousResponseId: scan.previousResponseId,
    unstored: scan.unstored,
    background: scan.background,
    ...(scan.sampling !== undefined && { sampling: samplingOf(scan.sampling, endpoint.answerLimits) }),
    // A limit of reasoning tokens is inserted only at these endpoints, because engines refuse unknown fields at their
    // other endpoints.
    ...(endpoint.injectUsage && { budgetAt: { topEnd: scan.topEnd, ...(scan.thinking && { value: scan.thinking }) } }),
  };
}

/** Refuses compressed bodies, which neither this code nor engines can read. @throws ApiError 415 (RFC 9110 §15.5.16) */
export function requireIdentityEncoding(contentEncoding: string | null | undefined): void {
  if (!contentEncoding || contentEncoding.toLowerCase() === 'identity') return;
  const message = `The body is compressed (content-encoding: ${contentEncoding.slice(0, 64)}); send it uncompressed.`;
  throw new ApiError('unsupported_media_type', message, { headers: { 'accept-encoding': 'identity' } });
}

/** Fields for a body that was not read. `says`: value of the request's `x-otela-stream` header. */
export function opaqueFields(endpoint: Endpoint, model: string, says: unknown): RequestFields {
  return { model, streaming: endpoint.streams && says === '1', edits: [], metadata: NO_METADATA, unseen: true };
}

/** True if another attempt can send the whole body. */
export function isRepeatable({ body }: Pick<ParsedRequest, 'body'>): boolean {
  return body.kind === 'kept' || body.opaque.replayable;
}

/** Returns the body for one attempt, from its start; null if it is no longer available. */
export function attemptBody({ body }: Pick<ParsedRequest, 'body'>): AttemptBody {
  if (body.kind === 'kept') return body.bytes;
  return body.opaque.replayable ? body.opaque.open() : null;
}

/** The reason why the client sent only a part of a streaming body. */
export function bodyFailure({ body }: Pick<ParsedRequest, 'body'>): ApiError | undefined {
  return body.kind === 'opaque' ? body.opaque.failure : undefined;
}
