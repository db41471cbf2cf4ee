/** How results of lines count: whether the engine or the line failed, and which part of a result is kept. */
import { type LineErrorCode, type LineResult, RESULT_MAX_BYTES } from '../../shared/batch/line-results.ts';
import type { StoredBatchState } from './batch-spec.ts';
import { ENGINE_ENDED } from './error-messages.ts';

/**
 * True if the engine failed, so that another attempt may succeed. Most 4xx responses are the line's fault. 404 and 429
 * are not: an engine without its model answers 404, and a busy engine 429.
 */
export function isEngineFailure({ status_code: status, error }: LineResult): boolean {
  return error !== undefined || status >= 500 || status === 429 || status === 404 || status < 200;
}

export function failed({ line, request_id, status_code: status, error, why }: LineResult): LineResult {
  const code = error === 'function_load_failed' ? error : 'engine_failed';
  const reason = why ?? (status >= 400 ? `It answered ${status}.` : undefined);
  return {
    line,
    request_id,
    status_code: 0,
    body: '',
    error: code satisfies LineErrorCode,
    ...(reason === undefined ? {} : { why: reason }),
  };
}

/** GPUs of engines are shared with requests, so lines at engines are not charged for GPU time. */
export function withoutGpuTime({ gpu_ms: _, ...result }: LineResult): LineResult {
  return result;
}

/** The result without what only its commit needs. */
export function withoutFiles({ files: _, ...result }: LineResult): LineResult {
  return result;
}

/** The result for a line if its node names a file that the gateway does not have. */
export function withoutItsFile({ line, request_id }: LineResult): LineResult {
  const why = 'The node named a file that it did not send.';
  return { line, request_id, status_code: 0, body: '', error: 'engine_failed', why };
}

/** The result for a line that was running when the engine of its node ended. */
export function endedWithEngine(line: number): LineResult {
  return { line, request_id: '', status_code: 0, body: '', error: 'engine_failed', why: ENGINE_ENDED };
}

export function bounded(result: LineResult, room: number): LineResult {
  if (result.body.length <= Math.min(RESULT_MAX_BYTES, room)) return result;
  return { ...result, body: '', error: 'response_too_large' satisfies LineErrorCode };
}

/**
 * A function that failed this many lines and completed none is given up. Without this limit, 50,000 lines would be
 * tried for days.
 */
const GIVE_UP_LINES = 3;

/**
 * Why a function that completed no line is given up, because its remaining lines would fail too: if it cannot be
 * loaded, after its first failed line; otherwise after GIVE_UP_LINES failed lines. Undefined: it is not.
 */
export function givenUpAfter(
  { error, why = '' }: LineResult,
  { counts, givenUp }: Pick<StoredBatchState, 'counts' | 'givenUp'>,
): StoredBatchState['givenUp'] {
  if (givenUp !== undefined || counts.completed > 0) return undefined;
  const code = error === 'function_load_failed' ? error : 'engine_failed';
  return code === 'function_load_failed' || counts.failed >= GIVE_UP_LINES ? { code, why } : undefined;
}
