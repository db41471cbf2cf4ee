import { SchedulerError } from '../errors.ts';
import { LENGTH_MAX } from '../simulator/length-distribution.ts';
import type { TraceRow } from '../simulator/request-arrivals.ts';

/**
 * Maximum number of distinct block ids that are remembered, 100 bytes each. A trace with more blocks would not fit into
 * memory.
 */
const IDS_MAX = 20_000_000;

/**
 * Converts hashes of single blocks to chained ids: two blocks get the same id only if they and all blocks before them
 * are equal, because engines share a block only if everything before it is equal.
 */
class PrefixIds {
  readonly #known = new Map<string, number>();

  /**
   * Returns one id per block, in order. It stops at the first new block when `IDS_MAX` ids are known: that block and
   * later ones count as not shared.
   */
  chain(blocks: readonly string[]): number[] {
    const ids: number[] = [];
    let before = 0;
    for (const block of blocks) {
      const key = `${before}:${block}`;
      let id = this.#known.get(key);
      if (id === undefined) {
        if (this.#known.size >= IDS_MAX) break;
        id = this.#known.size + 1;
        this.#known.set(key, id);
      }
      ids.push(id);
      before = id;
    }
    return ids;
  }
}

/**
 * Parses one line of a trace; undefined if it is not a request that an engine answered (a failure, a header).
 *
 * @throws if the line is malformed
 */
type Parse = (line: string) => (TraceRow & { model?: string }) | undefined;

export interface Format {
  name: string;
  parse: Parse;
  /** Tokens per hash of its prompts; 0: the format has no hashes. */
  prefixBlockTokens: number;
  /**
   * True if arrivals are dates: they are shifted so that the first request arrives at 0. False: they are used
   * unchanged.
   */
  dated: boolean;
}

/** If arrivals exceed this, the trace has milliseconds in place of seconds, or spans more than 30 years. */
const TRACE_MAX_S = 1e9;
/** The year 2286. A date beyond it is in milliseconds in place of seconds. */
const DATE_MAX_S = 1e10;
/** Tokens per block in Mooncake's traces (FAST'25), and in this project's exports. */
const MOONCAKE_BLOCK_TOKENS = 512;
const OWN_BLOCK_TOKENS = 16;

/** Detects the format of a file by its first line; undefined if the format is unknown. */
export function formatOf(first: string): Format | undefined {
  if (first.trimStart().startsWith('{')) return jsonFormat(first);
  const cells = cellsOf(first);
  const names = cells.map((cell) => cell.toLowerCase());
  if (names.every((name) => name !== '' && Number.isFinite(Number(name)))) return columns('plain', PLAIN, PLAIN.names);
  for (const one of [OWN, AZURE, BURST, PLAIN]) {
    const of = [one.arrival, one.input, one.output];
    if (of.every((name) => names.includes(name))) return columns(one.format, one, names);
  }
  return undefined;
}

interface Columns {
  format: string;
  arrival: string;
  input: string;
  output: string;
  names: string[];
}

/** Columns of a file without a header. */
const PLAIN: Columns = {
  format: 'plain',
  arrival: 'arrival_s',
  input: 'input',
  output: 'output',
  names: ['arrival_s', 'input', 'output'],
};
/** AzureLLMInferenceDataset 2023 and 2024 (Splitwise, ISCA'24; DynamoLLM). */
const AZURE: Columns = {
  format: 'azure',
  arrival: 'timestamp',
  input: 'contexttokens',
  output: 'generatedtokens',
  names: [],
};
/** BurstGPT v1.1 (Wang et al. 2024): seconds, and responses of 0 tokens if the service failed. */
const BURST: Columns = {
  format: 'burstgpt',
  arrival: 'timestamp',
  input: 'request tokens',
  output: 'response tokens',
  names: [],
};
/** `otela-gateway trace export --format csv`. */
const OWN: Columns = {
  format: 'otela',
  arrival: 'timestamp',
  input: 'input_tokens',
  output: 'output_tokens',
  names: [],
};

function columns(name: string, { arrival, input, output }: Columns, names: readonly string[]): Format {
  const [at, asked, answered] = [names.indexOf(arrival), names.indexOf(input), names.indexOf(output)];
  const [model, buckets] = [names.indexOf('model'), names.indexOf('prefix_buckets')];
  const dated = name === 'azure' || name === 'otela';
  const ids = new PrefixIds();
  const hashed = name === 'otela' && buckets >= 0;
  return {
    name,
    dated,
    prefixBlockTokens: hashed ? OWN_BLOCK_TOKENS : 0,
    parse: (line) => {
      const cells = cellsOf(line);
      if (cells.map((cell) => cell.toLowerCase()).join() === names.join()) return undefined;
      const arrivalS = dated ? secondsOf(cells[at] ?? '') : numberOf(cells[at]);
      const row = request(arrivalS, numberOf(cells[asked]), numberOf(cells[answered]), name !== 'plain');
      if (row === undefined) return undefined;
      const of = hashed
        ? { hashes: ids.chain((cells[buckets] ?? '').split(/[\s;|]+/).filter((one) => one !== '')) }
        : {};
      return { ...row, ...of, ...(model < 0 ? {} : { model: cells[model] ?? '' }) };
    },
  };
}

function jsonFormat(first: string): Format | undefined {
  const fields = objectOf(first);
  if ('input_length' in fields && 'output_length' in fields) {
    return { name: 'mooncake', dated: false, prefixBlockTokens: MOONCAKE_BLOCK_TOKENS, parse: mooncakeLine };
  }
  if ('reported_token_input' in fields && 'created_at' in fields) {
    const ids = new PrefixIds();
    return {
      name: 'swissai',
      dated: true,
      prefixBlockTokens: OWN_BLOCK_TOKENS,
      parse: (line) => publishedLine(line, ids),
    };
  }
  if ('input_tokens' in fields && 'output_tokens' in fields) {
    const ids = new PrefixIds();
    return { name: 'otela', dated: true, prefixBlockTokens: OWN_BLOCK_TOKENS, parse: (line) => ownLine(line, ids) };
  }
  return undefined;
}

/**
 * Parses a line of Mooncake's format, in which times are milliseconds and `hash_ids` are already chained: an equal id
 * means that the prompt is equal up to that block.
 */
function mooncakeLine(line: string): TraceRow | undefined {
  const { timestamp, input_length, output_length, hash_ids } = objectOf(line);
  const row = request(numberOf(timestamp) / 1000, numberOf(input_length), numberOf(output_length), true);
  if (row === undefined) return undefined;
  const ids = Array.isArray(hash_ids) ? hash_ids : [];
  if (!ids.every((id) => typeof id === 'number' && Number.isSafeInteger(id)))
    throw new Error('hash_ids must be whole numbers');
  // The last id may belong to a partial block, which engines never share.
  return { ...row, hashes: ids.slice(0, Math.floor(row.input / MOONCAKE_BLOCK_TOKENS)) };
}

function ownLine(line: string, ids: PrefixIds): (TraceRow & { model?: string }) | undefined {
  const { timestamp, input_tokens, output_tokens, model, prefix_buckets } = objectOf(line);
  const row = request(secondsOf(String(timestamp)), numberOf(input_tokens), numberOf(output_tokens), true);
  if (row === undefined) return undefined;
  const buckets = Array.isArray(prefix_buckets) ? prefix_buckets.map(String) : [];
  return { ...row, hashes: ids.chain(buckets), ...(typeof model === 'string' ? { model } : {}) };
}

/**
 * Parses a line of eth-easl/swissai-serving-trace (OSDI'26). A count of −1 means that it is missing, as after a
 * failure. A file of the trace has buckets of 16 tokens.
 */
function publishedLine(line: string, ids: PrefixIds): (TraceRow & { model?: string }) | undefined {
  const { created_at, reported_token_input, reported_token_output, token_count, model, bucket_ids } = objectOf(line);
  // PostgreSQL's NULL: the request has no time of arrival.
  if (created_at === '\\N') return undefined;
  const [reported, output] = [numberOf(reported_token_input), Math.max(0, numberOf(reported_token_output))];
  const input = reported >= 0 ? reported : Math.max(0, numberOf(token_count ?? 0));
  const row = request(secondsOf(String(created_at)), input, output, true);
  if (row === undefined) return undefined;
  const buckets = Array.isArray(bucket_ids) ? bucket_ids.map(String) : [];
  return { ...row, hashes: ids.chain(buckets), ...(typeof model === 'string' ? { model } : {}) };
}

/**
 * `failures`: true if a request without tokens is one that the service refused, which is skipped. False: it is an
 * error.
 */
function request(arrival: number, input: number, output: number, failures: boolean): TraceRow | undefined {
  if (failures && (input === 0 || output === 0)) return undefined;
  const whole = Number.isFinite(input) && Number.isFinite(output) && Math.max(input, output) <= LENGTH_MAX;
  if (!(arrival >= 0 && arrival <= DATE_MAX_S && Math.min(input, output) >= 1 && whole))
    throw new Error('a request needs an arrival, and at least one token of input and of output');
  return { arrival, input: Math.round(input), output: Math.round(output) };
}

/**
 * Parses a date of ISO 8601 with a `T` or a space and any number of decimals, in UTC if it names no zone. Returns
 * seconds since the epoch.
 */
function secondsOf(text: string): number {
  const [, day, time, fraction = '', zone = ''] =
    /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d+)?\s*(Z|[+-]\d\d:?\d\d)?$/.exec(text.trim()) ?? [];
  const seconds = Date.parse(`${day}T${time}${zone === '' ? 'Z' : zone.replace(/^(.\d\d)(\d\d)$/, '$1:$2')}`) / 1000;
  if (Number.isNaN(seconds)) throw new Error(`no date: ${text.slice(0, 40)}`);
  return seconds + Number(`0${fraction}`);
}

function numberOf(value: unknown): number {
  if (typeof value === 'number') return value;
  return typeof value === 'string' && value.trim() !== '' ? Number(value) : Number.NaN;
}

function objectOf(line: string): Record<string, unknown> {
  const value: unknown = JSON.parse(line);
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Error('the line is not a JSON object');
  return Object.fromEntries(Object.entries(value));
}

/** Parses CSV with optional quotes (RFC 4180); no line of a trace has a line break inside a cell. */
function cellsOf(line: string): string[] {
  const cells = line.match(/("(?:[^"]|"")*"|[^,]*)(,|$)/g) ?? [];
  const plain = cells.map((cell) => cell.replace(/,$/, '').trim());
  // The pattern also matches the empty text after the last cell.
  if (!line.endsWith(',')) plain.pop();
  return plain.map((cell) => (cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell));
}

/** Returns the rows in their order. If they are `dated`, arrivals become seconds after the earliest. */
export function withRelativeArrivals(rows: TraceRow[], dated: boolean, what: string): TraceRow[] {
  const first = dated ? rows.reduce((least, { arrival }) => Math.min(least, arrival), Number.POSITIVE_INFINITY) : 0;
  return rows.map((row) => {
    const arrival = row.arrival - first;
    if (arrival > TRACE_MAX_S)
      throw new SchedulerError(
        'bad_input',
        `${what}: a request arrives ${arrival.toExponential(2)} s after the first; arrivals must be in seconds`,
      );
    return { ...row, arrival };
  });
}
