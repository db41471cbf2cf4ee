import { ApiError } from '../openai/api-errors.ts';
import {
  type BatchEndpoint,
  type BatchError,
  checkLine,
  inputsOfLine,
  isJsonObject,
  type Json,
  notJson,
} from './batch-line.ts';
import { FUNCTIONS_ENDPOINT } from './function-context.ts';
import { BATCH_FILES_MAX, LINE_FILES_MAX, readLineFiles } from './function-files.ts';
import { lineFault } from './line-body.ts';
import {
  BATCH_REFERENCES_MAX,
  LINE_REFERENCES_MAX,
  type LineReference,
  readReferences,
  type WaitingLine,
} from './line-references.ts';
import { LineSplitter, type SplitLine } from './line-splitter.ts';
import { promptPrefixHash } from './prompt-prefix.ts';

/** OpenAI's limits for one batch. */
export const LINES_MAX = 50_000;
const EMBEDDING_INPUTS_MAX = 50_000;
export const INPUT_MAX_BYTES = 200_000_000;
/**
 * Maximum length of a line in bytes. Each line becomes one request. Larger inputs should be in files to which the line
 * refers.
 */
export const LINE_MAX_BYTES = 4 * 1024 * 1024;
/** Maximum number of errors in a failed batch's list. OpenAI also limits it. */
export const ERRORS_MAX = 1_000;

/**
 * Maximum number of lines of one chunk. A chunk ends at this limit or at the limit of its bytes, whichever comes first.
 */
export const CHUNK_LINES = 100;
export const CHUNK_BYTES = 256 * 1024;

/** A chunk: consecutive lines of the input file. */
export interface ChunkRange {
  /** Offset of the first line in the file, in bytes. */
  offset: number;
  /** Bytes from the start of the first line to the end of the last one. */
  bytes: number;
  /** Length of the longest line in bytes. Absent in chunks that an earlier version stored. */
  longest?: number;
  /** Index of the first line, from 0, not counting blank lines. */
  first: number;
  lines: number;
  /** Hash of the first line's prompt prefix. */
  prefix: number;
  /** Index of the requirements that the lines of the chunk share. */
  demands: number;
  /**
   * For lines that got results of other batches: their numbers in the input, and their `custom_id`s. The batch has the
   * text of such a chunk, which is in no file.
   */
  resolved?: { numbers: number[]; ids: string[] };
}

/** The requirements for nodes that may run a line. All lines of a chunk share them, so a lease is filtered once. */
export interface LineRequirements {
  model: string;
  /** `metadata.otela_require`, as written. */
  require?: string;
  /** `metadata.otela_trusted_providers`, as written. */
  trustedProviders?: string;
}

/**
 * Maximum number of different requirements per file. Without a limit each line might have its own requirements, and
 * leases could not be ordered.
 */
export const LINE_REQUIREMENTS_MAX = 64;

export interface CheckedInput {
  lines: number;
  /** The file's only model. Undefined if the lines name several models. */
  model?: string;
  chunks: ChunkRange[];
  demands: LineRequirements[];
  /** Files that lines of functions name, each once. At most BATCH_FILES_MAX. */
  files: string[];
  /** Lines that need results of other batches. They are in no chunk. */
  waiting?: WaitingLine[];
  /** If not empty, the batch fails. At most ERRORS_MAX. */
  errors: BatchError[];
}

interface CheckOptions {
  endpoint: BatchEndpoint;
  /** True if the batch's owner may use this model. Called once per model. If absent, all models are allowed. */
  allowsModel?(model: string): boolean;
  /** Number of batches with results that the lines may need. Default: 0. */
  after?: number;
}

/**
 * Checks a batch's input as it arrives, in one pass. Uses memory for the ids and 20 bytes per chunk, never for the
 * file.
 */
export class InputCheck {
  readonly #options: CheckOptions;
  readonly #splitter: LineSplitter;
  readonly #decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false });
  readonly #ids = new Map<string, number>();
  readonly #models = new Map<string, boolean>();
  readonly #errors: BatchError[] = [];
  readonly #chunks: ChunkRange[] = [];
  readonly #demands = new Map<string, { index: number; demands: LineRequirements }>();
  readonly #files = new Set<string>();
  readonly #waiting: WaitingLine[] = [];
  #references = 0;
  #lines = 0;
  #inputs = 0;
  #finished = false;

  constructor(options: CheckOptions) {
    this.#options = options;
    this.#splitter = new LineSplitter(
      LINE_MAX_BYTES,
      (line) => this.#check(line),
      (number) => this.#tooLong(number),
    );
  }

  push(piece: Uint8Array): void {
    if (!this.#finished) this.#splitter.push(piece);
  }

  end(): CheckedInput {
    if (!this.#finished) this.#splitter.end();
    if (this.#lines === 0 && this.#errors.length === 0) {
      this.#fail({ code: 'empty_file', message: 'The input file has no lines.', param: null, line: null });
    }
    const [model] = this.#models.size === 1 ? this.#models.keys() : [];
    return {
      lines: this.#lines,
      ...(model === undefined ? {} : { model }),
      chunks: this.#chunks,
      demands: [...this.#demands.values()].map(({ demands }) => demands),
      files: [...this.#files],
      ...(this.#waiting.length > 0 && { waiting: this.#waiting }),
      errors: this.#errors,
    };
  }

  #check(line: SplitLine): void {
    if (this.#finished) return;
    if (this.#lines === LINES_MAX) {
      this.#finished = true;
      const message = `A batch may have at most ${LINES_MAX} lines.`;
      return this.#fail({ code: 'too_many_tasks', message, param: null, line: null });
    }
    const first = this.#lines;
    this.#lines += 1;
    const checked = this.#read(line);
    if (Array.isArray(checked)) {
      for (const error of checked) this.#fail(error);
      return;
    }
    this.#takeId(String(checked.custom_id), line.number);
    const body = isJsonObject(checked.body) ? checked.body : {};
    this.#takeModel(String(body.model), line.number);
    this.#takeInputs(body);
    this.#takeFiles(body, line.number);
    const demands = this.#demandsOf(body, line.number);
    const needs = this.#needsOf(line, checked.after);
    if (demands === undefined || needs === undefined) return;
    if (needs.length === 0) return this.#addToChunk(line, first, body, demands);
    this.#waiting.push({ line: first, offset: line.offset, bytes: line.bytes.length, demands, needs });
  }

  /** @returns the results that a line needs; undefined: they are not valid */
  #needsOf({ bytes, number }: SplitLine, after: unknown): LineReference[] | undefined {
    const { after: batches = 0 } = this.#options;
    if (batches === 0) return [];
    const needs = readReferences(this.#decoder.decode(bytes), after, batches);
    this.#references += needs?.length ?? 0;
    if (needs !== undefined && this.#references <= BATCH_REFERENCES_MAX) return needs;
    const message = `A line names results as {"$result":[BATCH,LINE]}, and in 'after' as a list of such pairs: at most ${LINE_REFERENCES_MAX} of batches in x_otela.after, and ${BATCH_REFERENCES_MAX} in all lines.`;
    this.#fail({ code: 'invalid_request', message, param: 'after', line: number });
    return undefined;
  }

  /** @returns the line's fields, or all of its errors (at least one) */
  #read({ bytes, number }: SplitLine): Json | BatchError[] {
    try {
      const text = this.#decoder.decode(bytes);
      const fault = lineFault(bytes);
      const checked = checkLine(JSON.parse(text), this.#options.endpoint, number);
      return Array.isArray(checked) || fault === undefined ? checked : [lineError(fault, number, 'body.')];
    } catch (error) {
      return [error instanceof ApiError ? lineError(error, number, '') : notJson(number)];
    }
  }

  #takeId(id: string, line: number): void {
    const before = this.#ids.get(id);
    if (before === undefined) return void this.#ids.set(id, line);
    const message = `This line has the same custom_id as line ${before}.`;
    this.#fail({ code: 'duplicate_custom_id', message, param: 'custom_id', line });
  }

  #takeModel(model: string, line: number): void {
    const known = this.#models.get(model);
    if (known === true) return;
    if (known === undefined) {
      const allowed = this.#options.allowsModel?.(model) ?? true;
      // The map is bounded, because a file may name a different model in each line. Without an entry here the batch has
      // already failed.
      if (this.#models.size < ERRORS_MAX) this.#models.set(model, allowed);
      if (allowed && (this.#models.size === 1 || this.#options.endpoint !== FUNCTIONS_ENDPOINT)) return;
      if (allowed) {
        const message = 'All lines of a batch must name the same function.';
        return this.#fail({ code: 'mismatched_model', message, param: 'body.model', line });
      }
    }
    const message = 'The model of this line does not exist, or this key may not use it.';
    this.#fail({ code: 'model_not_found', message, param: 'body.model', line });
  }

  #takeInputs(body: Json): void {
    const before = this.#inputs;
    this.#inputs += inputsOfLine(body, this.#options.endpoint);
    if (this.#options.endpoint !== '/v1/embeddings') return;
    if (before <= EMBEDDING_INPUTS_MAX && this.#inputs > EMBEDDING_INPUTS_MAX) {
      const message = `A batch of embeddings may have at most ${EMBEDDING_INPUTS_MAX} inputs.`;
      this.#fail({ code: 'too_many_tasks', message, param: 'body.input', line: null });
    }
  }

  #takeFiles(body: Json, line: number): void {
    if (this.#options.endpoint !== FUNCTIONS_ENDPOINT) return;
    const files = readLineFiles(body.files);
    for (const id of files ?? []) if (this.#files.size <= BATCH_FILES_MAX) this.#files.add(id);
    if (files !== undefined && this.#files.size <= BATCH_FILES_MAX) return;
    const message = `'files' must be a list of at most ${LINE_FILES_MAX} file ids, and all lines together may name ${BATCH_FILES_MAX}.`;
    this.#fail({ code: 'invalid_request', message, param: 'body.files', line });
  }

  #demandsOf(body: Json, line: number): number | undefined {
    const demands = demandsOf(body);
    const key = JSON.stringify(demands);
    const known = this.#demands.get(key);
    if (known !== undefined) return known.index;
    if (this.#demands.size < LINE_REQUIREMENTS_MAX) {
      const index = this.#demands.size;
      this.#demands.set(key, { index, demands });
      return index;
    }
    const message = `The lines of a batch name more than ${LINE_REQUIREMENTS_MAX} different sets of model, requirements and trusted providers.`;
    this.#fail({ code: 'invalid_request', message, param: 'body.metadata', line });
    return undefined;
  }

  #addToChunk({ offset, bytes }: SplitLine, first: number, body: Json, demands: number): void {
    const end = offset + bytes.length;
    const last = this.#chunks.at(-1);
    const fits = last?.demands === demands && last.lines < CHUNK_LINES && end - last.offset <= CHUNK_BYTES;
    // A line that waits for results is not part of the chunk around it.
    if (last !== undefined && fits && last.first + last.lines === first) {
      last.lines += 1;
      last.bytes = end - last.offset;
      last.longest = Math.max(last.longest ?? 0, bytes.length);
      return;
    }
    this.#chunks.push({
      offset,
      bytes: bytes.length,
      longest: bytes.length,
      first,
      lines: 1,
      prefix: promptPrefixHash(body),
      demands,
    });
  }

  #tooLong(line: number): void {
    const message = `This line is longer than ${LINE_MAX_BYTES} bytes.`;
    this.#fail({ code: 'line_too_long', message, param: null, line });
  }

  #fail(error: BatchError): void {
    if (this.#errors.length < ERRORS_MAX) this.#errors.push(error);
  }
}

/** @param of prefix of the error's `param` */
function lineError({ code, message, param }: ApiError, line: number, of: string): BatchError {
  if (code === 'invalid_json') return { ...notJson(line), message: message.replace('The request body', 'This line') };
  return { code, message: message.replace('the request body', 'this line'), param: param && `${of}${param}`, line };
}

function demandsOf({ model, metadata }: Json): LineRequirements {
  const given = isJsonObject(metadata) ? metadata : {};
  const { otela_require: require, otela_trusted_providers: trustedProviders } = given;
  return {
    model: String(model),
    ...(typeof require === 'string' ? { require } : {}),
    ...(typeof trustedProviders === 'string' ? { trustedProviders } : {}),
  };
}
