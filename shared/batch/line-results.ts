import { tryParseJson } from '../text/parse-json.ts';
import type { Json } from './batch-line.ts';
import { WHY_MAX } from './function-context.ts';

/** Why a line has no HTTP response. */
export type LineErrorCode =
  | 'batch_expired'
  | 'batch_cancelled'
  | 'dependency_failed'
  | 'engine_failed'
  | 'function_load_failed'
  | 'model_unavailable'
  | 'response_too_large';

const MESSAGES: Record<LineErrorCode, string> = {
  batch_expired: 'This request could not be executed before the completion window expired.',
  batch_cancelled: 'This request was not executed, because the batch was cancelled.',
  dependency_failed: 'This request needs a result that does not exist.',
  engine_failed: 'Every engine that was tried failed on this request.',
  function_load_failed: 'The function could not be loaded on any node that tried.',
  model_unavailable: 'No node that may run this request was available before the batch ended.',
  response_too_large: 'The response exceeds the maximum size of one result, or of all results of a batch.',
};

/** Maximum length of a line's stored response. */
export const RESULT_MAX_BYTES = 1024 * 1024;

/** Maximum characters of a function's output in one commit, and of the last output that a batch keeps. */
export const LOG_MAX = { commit: 8_192, batch: 32_768 };

/** The answer to one line, as its node sends it. */
export interface LineResult {
  line: number;
  status_code: number;
  request_id: string;
  /** The response's body, as JSON text. */
  body: string;
  /** Set if there was no usable response. */
  error?: LineErrorCode;
  /** The node's description of the failure, at most WHY_MAX characters. */
  why?: string;
  /** Milliseconds for which the line occupied GPUs, times their number, as the node reports; absent: unknown. */
  gpu_ms?: number;
  /** Ids of the files that the call wrote, which the node has stored at the gateway. Absent: none. */
  files?: string[];
}

interface LineResponse {
  status_code: number;
  request_id: string;
  /** The response's body as JSON text; any other text is stored as a JSON string. */
  body: string;
}

/**
 * True if the response goes to the output file: it has a status below 400. All others go to the error file. A 4xx of
 * the model also goes there, but it is a response, not an `error`.
 */
export function isSuccess({ status_code: status }: Pick<LineResponse, 'status_code'>): boolean {
  return status >= 200 && status < 400;
}

/** One line of the output or error file, with its line end. `customId` is null if the input could no longer be read. */
export function answeredLine(
  id: string,
  customId: string | null,
  { status_code, request_id, body }: LineResponse,
): string {
  const [status, request] = [JSON.stringify(status_code), JSON.stringify(request_id)];
  const response = `{"status_code":${status},"request_id":${request},"body":${jsonText(body)}}`;
  return `{"id":${JSON.stringify(id)},"custom_id":${JSON.stringify(customId)},"response":${response},"error":null}\n`;
}

/**
 * The JSON text without line ends, otherwise unchanged, because parsing and serializing would lose digits of integers
 * above 2^53. In JSON, line ends occur only between tokens.
 */
function jsonText(text: string): string {
  return tryParseJson(text) === undefined ? JSON.stringify(text) : text.replace(/[\r\n]+/g, ' ').trim();
}

/** @param why the last node's description of the failure */
export function failedLine(id: string, customId: string | null, code: LineErrorCode, why?: string): string {
  const message = why === undefined ? MESSAGES[code] : `${MESSAGES[code]} ${why.slice(0, WHY_MAX)}`;
  return `${JSON.stringify({ id, custom_id: customId, response: null, error: { code, message } } satisfies Json)}\n`;
}
