/** Formats the line of one request in the workload trace. */
import { endpointById } from '../../shared/openai/endpoints.ts';
import { SAMPLING_NAMES, type SamplingName } from '../../shared/openai/sampling-parameters.ts';
import { sha256Hex } from '../accounts/secrets.ts';
import type { UsageRow } from './usage-row.ts';

/** Characters of a pseudonym, 64 bits: enough to distinguish users, and not reversible. */
const PSEUDONYM_CHARS = 16;

/** `published`: the format of eth-easl/swissai-serving-trace, the trace of the OpenTela paper (OSDI '26). */
export const TRACE_FORMATS = ['ndjson', 'csv', 'published'] as const;
type TraceFormat = (typeof TRACE_FORMATS)[number];

export interface TraceQuestion {
  /** The window in milliseconds since the epoch; `to` is excluded. */
  from: number;
  to: number;
  format: TraceFormat;
  /** The installation's secret. Without the secret, an id cannot be found from its pseudonym. */
  secret: string;
  /** Models whose names are replaced by pseudonyms. */
  privateModels: ReadonlySet<string>;
}

interface TraceLine extends Record<SamplingName, number | null> {
  timestamp: string;
  model: string;
  user: string;
  key: string;
  endpoint: string;
  streamed: boolean;
  /**
   * HTTP status. Null if unknown because the gateway was restarted during the attempt; then the times are null, too.
   */
  status: number | null;
  input_tokens: number;
  output_tokens: number;
  cached_tokens: number;
  reasoning_tokens: number;
  queue_ms: number;
  first_token_ms: number | null;
  total_ms: number | null;
  /** Number of the attempt; 0: no engine received the request. */
  attempt: number;
  /** Why no engine received the request; null: an engine received it. */
  error: string | null;
  /** Number of identical requests that were refused within a second, which are one line. */
  requests: number;
  aborted: boolean;
  estimated: boolean;
  provider: string;
  /** Bucket ids in the order of the prompt. Null: not reported. Empty: the engine has no tokenizer. */
  prefix_buckets: readonly string[] | null;
}

/** Formats a row as a line that includes the line feed. Empty: the format has no such line. */
export function traceLine(row: UsageRow, question: TraceQuestion): string {
  if (question.format === 'published') return publishedLine(row, question);
  const line = lineOf(row, question);
  return `${question.format === 'csv' ? csvLine(line) : JSON.stringify(line)}\n`;
}

function lineOf(row: UsageRow, { secret, privateModels }: TraceQuestion): TraceLine {
  const sampling = SAMPLING_NAMES.map((name) => [name, row.sampling?.[name] ?? null]);
  return {
    timestamp: new Date(row.at - (row.totalMs ?? 0)).toISOString(),
    model: modelOf(row, secret, privateModels),
    user: pseudonym(secret, 'user', row.user),
    key: pseudonym(secret, 'key', row.key),
    endpoint: endpointById(row.endpoint)?.path ?? '',
    streamed: row.streamed,
    status: row.status,
    input_tokens: row.prompt,
    output_tokens: row.completion,
    cached_tokens: row.cached,
    reasoning_tokens: row.reasoning,
    queue_ms: row.queueMs ?? 0,
    first_token_ms: row.firstMs,
    total_ms: row.totalMs,
    attempt: row.attempt,
    error: row.error ?? null,
    requests: row.times ?? 1,
    aborted: row.aborted,
    estimated: row.estimated,
    provider: row.provider,
    prefix_buckets: row.buckets ?? null,
    ...(Object.fromEntries(sampling) as Record<SamplingName, number | null>),
  };
}

/** How the published trace writes an unknown count and an unknown time. */
const NO_COUNT = -1;
const NO_TIME = '\\N';

/**
 * The published trace has no users, keys or providers, and one line per answer. It has no line for a request that no
 * engine received. Tokens of a failed attempt are unknown.
 */
function publishedLine(row: UsageRow, { secret, privateModels }: TraceQuestion): string {
  if (row.attempt === 0) return '';
  const failed = row.status !== null && (row.status < 200 || row.status >= 400);
  const isKnown = !failed && !row.estimated;
  const line = {
    id: pseudonym(secret, 'attempt', `${row.session} ${row.stream}`),
    status: failed ? 'ERROR' : 'DEFAULT',
    created_at: new Date(row.at - (row.totalMs ?? 0)).toISOString(),
    finished_at: row.totalMs === null ? NO_TIME : new Date(row.at).toISOString(),
    model: modelOf(row, secret, privateModels),
    model_parameters: row.sampling ?? {},
    reported_token_input: isKnown ? row.prompt : NO_COUNT,
    reported_token_output: isKnown ? row.completion : NO_COUNT,
    ...(row.buckets !== undefined && { token_count: row.prompt, bucket_ids: row.buckets }),
  };
  return `${JSON.stringify(line)}\n`;
}

function modelOf({ model }: UsageRow, secret: string, privateModels: ReadonlySet<string>): string {
  return privateModels.has(model) ? pseudonym(secret, 'model', model) : model;
}

/**
 * Computes the pseudonym of an id. This is as safe as an HMAC: the secret is 256 random bits of fixed length, and the
 * second hash prevents length extension of the first.
 */
function pseudonym(secret: string, kind: string, id: string): string {
  if (id === '') return '';
  const inner = sha256Hex(`otela-trace-1\n${secret}\n${kind}\n${id}`);
  return sha256Hex(`otela-trace-2\n${secret}\n${inner}`).slice(0, PSEUDONYM_CHARS);
}

const NO_ATTEMPT: UsageRow = {
  session: '',
  stream: 0,
  at: 0,
  request: '',
  attempt: 0,
  provider: '',
  key: '',
  user: '',
  project: '',
  model: '',
  endpoint: 0,
  streamed: false,
  status: 0,
  prompt: 0,
  completion: 0,
  cached: 0,
  reasoning: 0,
  firstMs: 0,
  totalMs: 0,
  aborted: false,
  estimated: false,
  complete: false,
  bytes: 0,
  traced: false,
};

/** Returns the first line of a CSV file. */
export function csvHead(question: TraceQuestion): string {
  return `${Object.keys(lineOf(NO_ATTEMPT, question)).join(',')}\n`;
}

/**
 * Formats a line (RFC 4180). Formulas are disabled, because a model's name may contain text that a spreadsheet would
 * run.
 */
function csvLine(line: TraceLine): string {
  return Object.values(line)
    .map((value) => {
      const text = value === null ? '' : Array.isArray(value) ? value.join(' ') : String(value);
      const safe = /^[=+\-@\t\r]/.test(text) && typeof value === 'string' ? `'${text}` : text;
      return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    })
    .join(',');
}
