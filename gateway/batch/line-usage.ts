import type { ChunkRange } from '../../shared/batch/batch-input-check.ts';
import type { LeaseRef } from '../../shared/batch/lease-ledger.ts';
import type { LineResult } from '../../shared/batch/line-results.ts';
import { type Endpoint, findEndpoint } from '../../shared/openai/endpoints.ts';
import { mediaOf } from '../../shared/openai/media-usage.ts';
import { isObject } from '../../shared/openai/token-usage.ts';
import { mixBits } from '../../shared/text/hash.ts';
import { tryParseJson } from '../../shared/text/parse-json.ts';
import type { UsageRow } from '../usage/usage-row.ts';
import type { BatchSpec, BatchUsage } from './batch-spec.ts';

/** Maximum tokens that a chat template may add to a prompt. */
const TEMPLATE_TOKENS = 1_024;
/** Milliseconds of audio that a byte of a line can hold: 1 kB of audio per 6 s, in base64. */
const AUDIO_MS_PER_BYTE = 8;

/**
 * Returns the tokens that a response claims to have used. Rerank states only the total, which is its input.
 * The claim is bounded: a token has at least one byte, so a provider cannot charge for more than the bytes that were
 * sent and received.
 * @param inputBytes upper bound of the line's length: see `lineBytes`
 */
export function lineUsage({ body, error }: Pick<LineResult, 'body' | 'error'>, inputBytes: number): BatchUsage {
  const none = { input: 0, cached: 0, output: 0, reasoning: 0 };
  if (error !== undefined) return none;
  try {
    const [sent, came] = [inputBytes + TEMPLATE_TOKENS, body.length];
    const { usage } = JSON.parse(body) as { usage?: Record<string, unknown> };
    if (usage === undefined || usage === null) return none;
    const details = (name: string) => (usage[name] ?? {}) as Record<string, unknown>;
    return {
      input: count(usage.prompt_tokens ?? usage.input_tokens ?? usage.total_tokens, sent),
      cached: count(
        details('prompt_tokens_details').cached_tokens ?? details('input_tokens_details').cached_tokens,
        sent,
      ),
      output: count(usage.completion_tokens ?? usage.output_tokens, came),
      reasoning: count(
        details('completion_tokens_details').reasoning_tokens ?? details('output_tokens_details').reasoning_tokens,
        came,
      ),
    };
  } catch {
    return none;
  }
}

/** Returns the seconds of audio that the engine of a line reports, at most as much as the line can hold. */
function lineAudio(
  endpoint: Endpoint | undefined,
  { body, status_code: status }: LineResult,
  inputBytes: number,
): Pick<UsageRow, 'audioMs'> {
  if (endpoint?.media !== 'uploaded_audio') return {};
  const answer = tryParseJson(body);
  const { usage, duration } = isObject(answer) ? answer : {};
  const { audioMs } = mediaOf(endpoint, { status }, { usage, duration });
  return audioMs === undefined ? {} : { audioMs: Math.min(audioMs, inputBytes * AUDIO_MS_PER_BYTE) };
}

/**
 * Returns an upper bound of the length of a chunk's line. The chunk's total length would be no useful bound, because
 * each line could then be charged for all of it.
 */
export function lineBytes(chunk: Pick<ChunkRange, 'bytes' | 'longest'> | undefined): number {
  return chunk?.longest ?? chunk?.bytes ?? 0;
}

function count(value: unknown, most: number): number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 ? Math.min(value, most) : 0;
}

interface BilledLine {
  spec: BatchSpec;
  result: LineResult;
  ref: Pick<LeaseRef, 'node' | 'chunk'>;
  provider: string;
  /** When the line was committed; milliseconds since the epoch. */
  at: number;
  model: string;
  /** Upper bound of the line's length. */
  inputBytes: number;
}

/**
 * Builds the usage record of a line that an engine answered. The record's stream number is derived from the line, so
 * the line counts once.
 */
export function batchUsageRow({ spec, result, ref, provider, at, model, inputBytes }: BilledLine): UsageRow {
  const { input, cached, output, reasoning } = lineUsage(result, inputBytes);
  const found = findEndpoint('POST', spec.endpoint);
  const endpoint = found === undefined || 'methodNotAllowed' in found ? undefined : found;
  return {
    ...lineAudio(endpoint, result, inputBytes),
    session: ref.node,
    stream: lineStreamNumber(spec.id, ref.chunk, result.line),
    at,
    request: result.request_id,
    attempt: 1,
    provider,
    key: spec.account.keyId,
    user: spec.account.userId ?? '',
    project: spec.account.projectId ?? '',
    model,
    endpoint: endpoint?.id ?? 0,
    streamed: false,
    status: result.status_code,
    prompt: input,
    completion: output,
    cached,
    reasoning,
    firstMs: null,
    totalMs: null,
    aborted: false,
    estimated: false,
    complete: true,
    bytes: result.body.length,
    traced: spec.account.traced,
  };
}

/**
 * Returns the stream number of one line, which is always the same: 2^52 plus 52 bits of a hash. Tunnels use only
 * numbers below 2^52. If one node answers a million lines in one hour, two of them have the same number with a
 * probability of 1 in 9,000; the record of the later one is then missing.
 */
export function lineStreamNumber(batch: string, chunk: number, line: number): number {
  const name = `${batch}/${chunk}/${line}`;
  let [high, low] = [0x811c9dc5, 0x9747b28c];
  for (let i = 0; i < name.length; i++) {
    const code = name.charCodeAt(i);
    high = Math.imul(high ^ code, 0x01000193);
    low = Math.imul(low ^ code, 0x5bd1e995);
  }
  return 2 ** 52 + (mixBits(high) >>> 12) * 2 ** 32 + mixBits(low);
}
