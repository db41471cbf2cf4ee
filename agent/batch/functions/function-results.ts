/** Results of lines with functions, as they are committed. */
import { randomUUID } from 'node:crypto';
import { WHY_MAX } from '../../../shared/batch/function-context.ts';
import type { OutputFile } from '../../../shared/batch/function-files.ts';
import { type LineResult, RESULT_MAX_BYTES } from '../../../shared/batch/line-results.ts';

/** A file that a call wrote, which the gateway has. */
export interface StoredFile extends OutputFile {
  id: string;
}

/** @param output the function's output as JSON */
export function answeredLine(
  line: number,
  model: string,
  output = 'null',
  files: readonly StoredFile[] = [],
): LineResult {
  const written = files.map(({ id, name, bytes, sha256 }) => ({ id, name, bytes, sha256 }));
  const more = written.length === 0 ? '' : `,"files":${JSON.stringify(written)}`;
  const body = `{"object":"otela.function.output","model":${JSON.stringify(model)},"output":${output}${more}}`;
  if (Buffer.byteLength(body) <= RESULT_MAX_BYTES) {
    const ids = written.length === 0 ? {} : { files: written.map(({ id }) => id) };
    return { line, status_code: 200, request_id: randomUUID(), body, ...ids };
  }
  return raisedLine(
    line,
    `the result has more than ${RESULT_MAX_BYTES} bytes: return less, or write it to a file and return opentela.File(path)`,
  );
}

/**
 * The result for a line that the function refused with an error. As with a model's 4xx, the line is not tried again.
 */
export function raisedLine(line: number, message: string): LineResult {
  const error = { message, type: 'function_error', param: null, code: 'function_failed' };
  return { line, status_code: 400, request_id: randomUUID(), body: JSON.stringify({ error }) };
}

export function failedLine(line: number, error: NonNullable<LineResult['error']>, why: string): LineResult {
  return { line, status_code: 0, request_id: randomUUID(), body: '', error, why: why.slice(0, WHY_MAX) };
}
