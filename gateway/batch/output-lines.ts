/** Produces the output file and the error file of an ended batch from its input and its results. */

import { LINE_MAX_BYTES } from '../../shared/batch/batch-input-check.ts';
import { hasBit } from '../../shared/batch/bitmap.ts';
import type { ChunkState } from '../../shared/batch/lease-ledger.ts';
import {
  answeredLine,
  failedLine,
  isSuccess,
  type LineErrorCode,
  type LineResult,
} from '../../shared/batch/line-results.ts';
import { LineSplitter } from '../../shared/batch/line-splitter.ts';
import { concat } from '../../shared/collections/concat.ts';
import { type FileStore, FileStoreError } from '../files/file-store.ts';
import { lineNumber } from './dependencies/line-values.ts';

/** Maximum bytes of each of the two files: 50,000 results of 100 KB. */
export const OUTPUT_MAX_BYTES = 5_000_000_000;
/**
 * Maximum bytes of input per read of the store, except for one longer chunk. Short chunks are read together, because an
 * input whose lines have different requirements may have 50,000 chunks.
 */
const READ_BYTES = 4 * 1024 * 1024;

interface OutputOptions {
  batch: string;
  input: string;
  store: FileStore;
  chunks: readonly ChunkState[];
  results(chunk: number): Map<number, LineResult>;
  /** True for the output file, with successful responses; false for the error file, with all other lines. */
  successes: boolean;
  /** Error code of lines without a result. */
  unexecuted: LineErrorCode;
  /**
   * True: if the input cannot be read any more, lines are written without their `custom_id`. False: writing then fails.
   */
  mayLackInput: boolean;
  /** Explanation for lines that get the error code `unexecuted`. */
  why?: string;
  /**
   * Lines with successful responses that did not fit into the output file. Writing the output file collects them; the
   * error file then lists them.
   */
  leftOut: Set<number>;
  maxBytes: number;
}

/**
 * Yields the lines of the file in the order of the input, at most `maxBytes`.
 * @throws FileStoreError if the input cannot be read
 */
export async function* outputLines(options: OutputOptions): AsyncGenerator<Uint8Array> {
  const { successes, leftOut, maxBytes } = options;
  const encoder = new TextEncoder();
  let room = maxBytes;
  for await (const [chunk, ids] of namedChunks(options)) {
    const results = options.results(chunk.id);
    const lines: Uint8Array[] = [];
    for (const [line, customId] of ids.entries()) {
      const number = lineNumber(chunk, line);
      const id = lineId(options.batch, number);
      const result = hasBit(chunk.done, line) ? results.get(line) : undefined;
      const success = result !== undefined && result.error === undefined && isSuccess(result);
      if (success !== successes && (successes || !leftOut.has(number))) continue;
      const own = encoder.encode(leftOut.has(number) ? '' : written(id, customId, result, options));
      if (own.length > 0 && own.length <= room) {
        room -= own.length;
        lines.push(own);
      } else if (successes) leftOut.add(number);
      else lines.push(encoder.encode(failedLine(id, customId, 'response_too_large')));
    }
    if (lines.length > 0) yield concat(lines);
  }
}

/** Returns the id of a line in the result files. @param number index of the line in the input, from 0 */
export function lineId(batch: string, number: number): string {
  return `batch_req_${batch.slice('batch_'.length)}${number.toString(16).padStart(6, '0')}`;
}

/** The line of a result, with its line end. */
export function written(
  id: string,
  customId: string | null,
  result: LineResult | undefined,
  { unexecuted, why }: Pick<OutputOptions, 'unexecuted' | 'why'>,
): string {
  if (result === undefined) return failedLine(id, customId, unexecuted, why);
  if (result.error !== undefined) return failedLine(id, customId, result.error, result.why);
  return answeredLine(id, customId, result);
}

type CustomIds = (string | null)[];

/** Yields each chunk with the `custom_id`s of its lines. */
async function* namedChunks(options: OutputOptions): AsyncGenerator<[ChunkState, CustomIds]> {
  for (const run of runsOf(options.chunks)) {
    const [only] = run;
    const ids = only?.resolved?.ids ?? (await customIds(options, run));
    let from = 0;
    for (const chunk of run) {
      yield [chunk, ids.slice(from, from + chunk.lines)];
      from += chunk.lines;
    }
  }
}

/** Groups consecutive chunks into one read. Between consecutive chunks there are only line ends. A chunk that is in no file has its own group. */
function* runsOf(chunks: readonly ChunkState[]): Generator<ChunkState[]> {
  let run: ChunkState[] = [];
  for (const chunk of chunks) {
    const [first] = run;
    const last = run.at(-1);
    const follows = last !== undefined && !last.resolved && !chunk.resolved && last.first + last.lines === chunk.first;
    if (first !== undefined && (!follows || chunk.offset + chunk.bytes - first.offset > READ_BYTES)) {
      yield run;
      run = [];
    }
    run.push(chunk);
  }
  if (run.length > 0) yield run;
}

async function customIds(options: OutputOptions, run: readonly ChunkState[]): Promise<CustomIds> {
  try {
    return await readCustomIds(options, run);
  } catch (error) {
    const lost = error instanceof FileStoreError && error.code === 'damaged';
    if (lost && options.mayLackInput) return new Array<null>(run.reduce((sum, { lines }) => sum + lines, 0)).fill(null);
    throw error;
  }
}

/** @throws FileStoreError */
export async function readCustomIds(
  { store, input }: Pick<OutputOptions, 'store' | 'input'>,
  run: readonly Pick<ChunkState, 'offset' | 'bytes'>[],
): Promise<string[]> {
  const [first, last] = [run[0], run.at(-1)];
  if (first === undefined || last === undefined) return [];
  const length = last.offset + last.bytes - first.offset;
  const content = await store.read(input, { offset: first.offset, length });
  if (content === undefined) throw new FileStoreError('damaged', `the file store has lost ${input}`);
  const ids: string[] = [];
  const decoder = new TextDecoder();
  const splitter = new LineSplitter(
    LINE_MAX_BYTES,
    ({ bytes }) => {
      const line = JSON.parse(decoder.decode(bytes)) as { custom_id: string };
      ids.push(line.custom_id);
    },
    () => {},
  );
  for await (const piece of content) splitter.push(piece);
  splitter.end();
  return ids;
}
