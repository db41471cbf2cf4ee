import { type Edit, joinEdits, renaming, usageEdits } from '../openai/edits.ts';
import type { Endpoint } from '../openai/endpoints.ts';
import { ApiError } from '../openai/errors.ts';
import { scanMultipart } from '../openai/multipart.ts';
import { type BudgetAt, budgetEdits } from '../openai/reasoning.ts';
import type { Sampling } from '../openai/sampling.ts';
import { requireModel, scanJson } from '../openai/scan.ts';
import type { HeaderList } from '../wire/headers.ts';
import type { AttemptBody, AttemptRequest } from './attempt.ts';
import type { OpaqueBody } from './opaque-body.ts';
import type { ModelAt } from './routed-request.ts';

export type Body =
  | { kind: 'kept'; bytes: Uint8Array }
  | { kind: 'opaque'; opaque: OpaqueBody; length: number | undefined };

/** What had to be known of a body. */
export interface Known {
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
  /** The model is what a header says: nobody looked into the body. */
  unseen: boolean;
}

/** A request's body and what had to be known of it. */
export interface Intake extends Known {
  body: Body;
  /** Reads the body, where nothing of it had to be known before a node was found. Idempotent. */
  fill?: () => Promise<void>;
  /** Lets go of the body and of its share of the budget: no other attempt needs it any more. Idempotent. */
  release(): void;
}

const NO_METADATA: Known['metadata'] = {};

/** @throws ApiError 400 */
export function lookInto(bytes: Uint8Array, contentType: string, endpoint: Endpoint): Known {
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
    ...(scan.sampling !== undefined && { sampling: scan.sampling }),
    // Other endpoints of engines refuse what they do not know.
    ...(endpoint.injectUsage && { budgetAt: { topEnd: scan.topEnd, ...(scan.thinking && { value: scan.thinking }) } }),
  };
}

/** Nobody here could look into a compressed body, and engines take none. @throws ApiError 415 (RFC 9110 §15.5.16) */
export function requirePlain(contentEncoding: string | null | undefined): void {
  if (!contentEncoding || contentEncoding.toLowerCase() === 'identity') return;
  const message = `The body is compressed (content-encoding: ${contentEncoding.slice(0, 64)}); send it as it is.`;
  throw new ApiError('unsupported_media_type', message, { headers: { 'accept-encoding': 'identity' } });
}

/** Of a body that nobody looks into. `says`: the request's `x-otela-stream`. */
export function unseen(endpoint: Endpoint, model: string, says: unknown): Known {
  return { model, streaming: endpoint.streams && says === '1', edits: [], metadata: NO_METADATA, unseen: true };
}

/** Another attempt can have the whole body. */
export function isRepeatable({ body }: Pick<Intake, 'body'>): boolean {
  return body.kind === 'kept' || body.opaque.replayable;
}

/** The body for one attempt, from its start; null where none can have it any more. */
export function bodyOf({ body }: Pick<Intake, 'body'>): AttemptBody {
  if (body.kind === 'kept') return body.bytes;
  return body.opaque.replayable ? body.opaque.open() : null;
}

const FIRST_BYTE_MS = 900_000;
const STALL_MS = 120_000;

/** What every attempt at one request has in common. */
export interface Errand {
  /**
   * Names the request's streams between asker and agents; whoever knows it can claim an answer. So it is ours and random,
   * never the client's request id: two clients may send the same.
   */
  name: string;
  endpoint: Endpoint;
  intake: Intake;
  headers: HeaderList;
  receipt: string;
  /** Time-outs of the model, where it has its own. */
  timeouts?: { first_byte_ms?: number | null; stall_ms?: number | null } | undefined;
}

/** The errand with another body, JSON as its endpoint takes it. */
export function withBody(errand: Errand, bytes: Uint8Array): Errand {
  const known = lookInto(bytes, 'application/json', errand.endpoint);
  return { ...errand, intake: { ...known, body: { kind: 'kept', bytes }, release: () => {} } };
}

/** `model`: what the node is asked for, where that is not what the body says; `budget`: tokens of reasoning, where its engine can be told. */
export function openingOf(
  errand: Errand,
  attempt: number,
  acceptMs: number,
  model = errand.intake.model,
  budget?: number,
): AttemptRequest {
  const { intake, endpoint, timeouts } = errand;
  return {
    requestId: errand.name,
    attempt,
    resume: false,
    answerOffset: 0,
    endpoint: endpoint.id,
    headers: errand.headers,
    edits: editsFor(intake, model, budget).map((edit) => ({ ...edit, insert: decoder.decode(edit.insert) })),
    streaming: intake.streaming,
    dropUsage: intake.edits.length > 0,
    firstByteMs: timeouts?.first_byte_ms ?? FIRST_BYTE_MS,
    stallMs: timeouts?.stall_ms ?? STALL_MS,
    receipt: errand.receipt,
    acceptMs,
    bodyLength: intake.body.kind === 'kept' ? intake.body.bytes.length : intake.body.length,
  };
}

/** The body goes as it came: the agent writes another model's name into it. */
function editsFor({ model, modelAt, budgetAt, edits }: Intake, served: string, budget: number | undefined): Edit[] {
  const renamed = served === model || modelAt === undefined ? [] : [renaming(modelAt, served)];
  const limited = budget === undefined || budgetAt === undefined ? [] : budgetEdits(budgetAt, budget);
  return renamed.length + limited.length === 0 ? edits : joinEdits(edits, renamed, limited);
}

const decoder = new TextDecoder();
