import type { ParsedBody, RequestFields } from '../attempts/parsed-request.ts';
import { ApiError } from '../openai/api-errors.ts';
import type { Priority } from '../routing/fair-queue.ts';
import type { RoutedRequest } from '../routing/routing-policy.ts';
import { durationMs } from '../text/duration.ts';
import { fnv1aOfBeginnings } from '../text/hash.ts';
import { conversationId } from './conversation-name.ts';

export const PRIORITY_HEADER = 'x-otela-priority';
const FIRST_TOKEN_HEADER = 'x-otela-first-token';

/** Approximate bytes per token of English and of code. */
const BYTES_PER_TOKEN = 4;

/**
 * Number of bytes at a body's beginning that identify the cached prefix. Instructions and tools are at the beginning.
 */
const PREFIX_BYTES = 1024;
/**
 * Longer beginnings, by which the next turn of a conversation is recognized. A prompt of 64 KiB takes 0.1 ms. Sizes in
 * between recognize no more in Mooncake's trace of conversations (`npm run --prefix research bench:kv-routing`).
 */
const LONGER_PREFIX_BYTES = [4, 8, 16, 32, 64].map((kib) => kib * 1024);

/** What policies may know about a request. */
export function routedRequest(
  header: (name: string) => string | null | undefined,
  parsed: RequestFields & { body: ParsedBody },
  model: string,
  project: string,
): RoutedRequest {
  const { body } = parsed;
  const session = conversationId(header, parsed, project);
  const bytes = body.kind === 'kept' ? body.bytes.length : (body.length ?? 0);
  return {
    model,
    project,
    priority: header(PRIORITY_HEADER) === 'batch' ? 'batch' : 'interactive',
    inputTokens: Math.ceil(bytes / BYTES_PER_TOKEN),
    maxTokens: parsed.sampling?.max_tokens,
    firstTokenMs: parsed.streaming ? readFirstToken(header(FIRST_TOKEN_HEADER)) : undefined,
    session,
    ...(session === undefined && body.kind === 'kept' && parsed.sealed === undefined && prefixesOf(body.bytes)),
  };
}

/**
 * Reads `x-otela-priority`. The default is `interactive`, which means that a person waits for the response. @throws
 * ApiError 400
 */
export function readPriority(given: string | null | undefined): Priority {
  if (given === null || given === undefined || given === 'interactive') return 'interactive';
  if (given === 'batch') return given;
  throw new ApiError('invalid_request', `${PRIORITY_HEADER} must be interactive or batch.`, { param: PRIORITY_HEADER });
}

/** Maximum time for a first token. A longer one would restrict nothing. */
export const FIRST_TOKEN_MAX_MS = 600_000;

/** Reads a duration such as `500ms` or `2s`. @throws ApiError 400 */
function readFirstToken(given: string | null | undefined): number | undefined {
  if (given === null || given === undefined) return undefined;
  const ms = durationMs(given);
  if (ms !== undefined && ms > 0 && ms <= FIRST_TOKEN_MAX_MS) return ms;
  throw new ApiError('invalid_request', `${FIRST_TOKEN_HEADER} must be a time such as 500ms or 2s, at most 10m.`, {
    param: FIRST_TOKEN_HEADER,
  });
}

/** FNV-1a hashes of the body's beginnings. None for a shorter body, because caching its prefix saves too little. */
function prefixesOf(bytes: Uint8Array): Pick<RoutedRequest, 'prefixHash' | 'longerPrefixes'> {
  const [prefixHash, ...longerPrefixes] = fnv1aOfBeginnings(bytes, [PREFIX_BYTES, ...LONGER_PREFIX_BYTES]);
  return { prefixHash, ...(longerPrefixes.length > 0 && { longerPrefixes }) };
}
