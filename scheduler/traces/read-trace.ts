import { closeSync, openSync, readSync } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';
import { errorText } from '../../shared/text/error-text.ts';
import { SchedulerError } from '../errors.ts';
import type { TraceRow } from '../simulator/request-arrivals.ts';
import { type Format, formatOf, withRelativeArrivals } from './trace-formats.ts';

/** Maximum number of requests of one trace: 5 M rows with their prefixes take some GB. */
const TRACE_ROWS_MAX = 5_000_000;
const CHUNK_BYTES = 1 << 20;
/**
 * Maximum characters of a line. A line about a prompt of 10 M tokens has 600,000 hashes of blocks of 16 tokens, with 20
 * characters each.
 */
const LINE_CHARS_MAX = 16 << 20;

interface Trace {
  rows: TraceRow[];
  /** Name of the format: `plain`, `azure`, `mooncake`, `burstgpt` or `otela`. */
  format: string;
  /** Tokens per hash; 0: the trace does not describe shared prefixes. */
  prefixBlockTokens: number;
  /** Number of lines that were skipped: not an answered request, or a request of another model. */
  leftOut: number;
}

/**
 * Reads a trace; its first line determines the format. `model`: only requests of this model, if the trace names models.
 *
 * @throws SchedulerError `bad_input` with the line, or if no request is left
 */
export function readTrace(path: string, model?: string): Trace {
  let format: Format | undefined;
  let [line, leftOut] = [0, 0];
  const rows: TraceRow[] = [];
  for (const text of linesOf(path)) {
    line++;
    if (text.trim() === '' || text.startsWith('#')) continue;
    format ??= formatOrThrow(text, path);
    const row = parseLine(format, text, path, line);
    if (row === undefined || (model !== undefined && row.model !== undefined && row.model !== model)) {
      leftOut++;
      continue;
    }
    if (rows.length >= TRACE_ROWS_MAX)
      throw new SchedulerError(
        'bad_input',
        `${path} has more than ${TRACE_ROWS_MAX.toLocaleString('en')} requests; shorten it`,
      );
    const { model: _model, ...request } = row;
    rows.push(request);
  }
  if (format === undefined || rows.length === 0) {
    const of = model === undefined ? '' : ` of ${model}`;
    throw new SchedulerError('bad_input', `${path}: no request${of} in it`);
  }
  return {
    rows: withRelativeArrivals(rows, format.dated, path),
    format: format.name,
    prefixBlockTokens: format.prefixBlockTokens,
    leftOut,
  };
}

function formatOrThrow(first: string, path: string): Format {
  let found: Format | undefined;
  try {
    found = formatOf(first);
  } catch {
    // The error below also covers a file that cannot be read.
  }
  if (found !== undefined) return found;
  throw new SchedulerError(
    'bad_input',
    `${path}: not arrival_s,input,output nor a trace of Azure, Mooncake, BurstGPT or otela-gateway: ${first.slice(0, 120)}`,
  );
}

function parseLine(format: Format, text: string, path: string, line: number): ReturnType<Format['parse']> {
  try {
    return format.parse(text);
  } catch (cause) {
    const why = errorText(cause);
    throw new SchedulerError('bad_input', `${path}, line ${line} (${format.name}): ${why}: ${text.slice(0, 120)}`, {
      cause,
    });
  }
}

/** Reads line by line, because a week of Azure's trace is larger than the longest string. */
function* linesOf(path: string): Generator<string> {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (cause) {
    throw new SchedulerError('bad_input', `cannot read ${path}: ${errorText(cause)}`, { cause });
  }
  const decoder = new StringDecoder('utf8');
  const chunk = Buffer.alloc(CHUNK_BYTES);
  let rest = '';
  try {
    for (let size = readChunk(file, chunk, path); size > 0; size = readChunk(file, chunk, path)) {
      const lines = (rest + decoder.write(chunk.subarray(0, size))).split(/\r?\n/);
      rest = lines.pop() ?? '';
      if (rest.length > LINE_CHARS_MAX)
        throw new SchedulerError('bad_input', `${path} has a line of more than ${LINE_CHARS_MAX} characters`);
      yield* lines;
    }
    yield rest + decoder.end();
  } finally {
    closeSync(file);
  }
}

function readChunk(file: number, chunk: Buffer, path: string): number {
  try {
    return readSync(file, chunk);
  } catch (cause) {
    throw new SchedulerError('bad_input', `cannot read ${path}: ${errorText(cause)}`, { cause });
  }
}
