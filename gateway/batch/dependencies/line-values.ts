/** The results of a batch as values for lines of other batches. */
import * as z from 'zod';
import type { BatchEndpoint } from '../../../shared/batch/batch-line.ts';
import { isJsonObject } from '../../../shared/batch/batch-line.ts';
import { hasBit } from '../../../shared/batch/bitmap.ts';
import { FUNCTIONS_ENDPOINT } from '../../../shared/batch/function-context.ts';
import { LINE_FILES_MAX, outputFileSchema } from '../../../shared/batch/function-files.ts';
import type { ChunkState } from '../../../shared/batch/lease-ledger.ts';
import { memberText } from '../../../shared/batch/line-body.ts';
import type { LineValue, ResultFile } from '../../../shared/batch/line-references.ts';
import { isSuccess, type LineResult } from '../../../shared/batch/line-results.ts';
import { openAiErrorMessage } from '../../../shared/openai/error-message.ts';
import { tryParseJson } from '../../../shared/text/parse-json.ts';
import { outputFileId } from '../output-file-id.ts';

/** An answer ends when it has this many bytes of values. */
const VALUES_BYTES = 4 * 1024 * 1024;
const WHY_MAX_CHARS = 900;

interface ValueSource {
  /** Id of the batch. */
  batch: string;
  endpoint: BatchEndpoint;
  /** How messages name the function or model. */
  name: string;
  chunks: readonly ChunkState[];
  results(chunk: number): Map<number, LineResult>;
  /** Why a line of an ended batch has no result. */
  why: string;
}

/** The number of a line in the batch's input. */
export function lineNumber({ first, resolved }: Pick<ChunkState, 'first' | 'resolved'>, line: number): number {
  return resolved?.numbers[line] ?? first + line;
}

/** A bit for each line with a result, by its number in the input. */
export function doneLines(chunks: readonly ChunkState[], total: number): Uint8Array {
  const done = new Uint8Array(Math.ceil(total / 8));
  for (const chunk of chunks)
    for (let line = 0; line < chunk.lines; line++) {
      if (!hasBit(chunk.done, line)) continue;
      const number = lineNumber(chunk, line);
      done[number >> 3] = (done[number >> 3] ?? 0) | (1 << (number & 7));
    }
  return done;
}

/** Returns values of these lines, in the given order. Ends early, after at least one line, if they are long. */
export function lineValues(source: ValueSource, lines: readonly number[]): LineValue[] {
  const places = placesOf(source.chunks, new Set(lines));
  const read = new Map<number, Map<number, LineResult>>();
  const values: LineValue[] = [];
  let room = VALUES_BYTES;
  for (const line of lines) {
    const place = places.get(line);
    let results = place && read.get(place.chunk);
    if (place !== undefined && results === undefined) {
      results = source.results(place.chunk);
      read.set(place.chunk, results);
    }
    const found = valueOfResult(source, place && results?.get(place.index));
    room -= 'value' in found ? found.value.length : found.why.length;
    if (room < 0 && values.length > 0) return values;
    values.push({ line, ...found });
  }
  return values;
}

function placesOf(chunks: readonly ChunkState[], lines: ReadonlySet<number>) {
  const places = new Map<number, { chunk: number; index: number }>();
  for (const chunk of chunks)
    for (let index = 0; index < chunk.lines; index++) {
      const number = lineNumber(chunk, index);
      if (lines.has(number)) places.set(number, { chunk: chunk.id, index });
    }
  return places;
}

function valueOfResult({ batch, endpoint, name, why }: ValueSource, result: LineResult | undefined) {
  if (result === undefined) return { why: `A call of ${name} has no result: ${why}`.slice(0, WHY_MAX_CHARS) };
  // The first cause in a chain is named.
  if (result.error === 'dependency_failed') return { why: result.why ?? `A call of ${name} failed.` };
  const reason = failureOf(result);
  if (reason !== undefined) return { why: `A call of ${name} failed: ${reason}`.slice(0, WHY_MAX_CHARS) };
  const nothing = { why: `A call of ${name} returned no value that another call can get.` };
  if (endpoint === FUNCTIONS_ENDPOINT) return outputOf(batch, result.body) ?? nothing;
  const value = answerOf(endpoint, result.body);
  return value === undefined ? nothing : { value };
}

function failureOf(result: LineResult): string | undefined {
  const { error, why, status_code: status, body } = result;
  if (error !== undefined) return why ?? error;
  return isSuccess(result) ? undefined : (openAiErrorMessage(body) ?? `status ${status}`);
}

const filesSchema = z.array(outputFileSchema.extend({ id: z.string() })).max(LINE_FILES_MAX);

/** What a function returned; undefined: nothing, or files that no call of this batch wrote. */
function outputOf(batch: string, body: string): { value: string; files?: ResultFile[] } | undefined {
  const [value, written] = [memberText(body, 'output'), memberText(body, 'files')];
  if (value === undefined || written === undefined) return value === undefined ? undefined : { value };
  const { data } = filesSchema.safeParse(tryParseJson(written));
  // The node wrote the body: it could name files of other owners, but not with the id of a file of this batch.
  if (data?.every(({ id, sha256 }) => id === outputFileId(batch, sha256)) !== true) return undefined;
  return { value, files: data.map(({ id, name }) => ({ id, name })) };
}

/** JSON text; undefined: the response has no such value. */
function answerOf(endpoint: BatchEndpoint, body: string): string | undefined {
  if (endpoint !== '/v1/chat/completions' && endpoint !== '/v1/embeddings') return body;
  const answer = tryParseJson(body);
  const list = isJsonObject(answer) ? (endpoint === '/v1/embeddings' ? answer.data : answer.choices) : undefined;
  const first: unknown = Array.isArray(list) ? list[0] : undefined;
  if (!isJsonObject(first)) return undefined;
  const value = endpoint === '/v1/embeddings' ? first.embedding : isJsonObject(first.message) && first.message.content;
  return typeof value === 'string' || Array.isArray(value) ? JSON.stringify(value) : undefined;
}
