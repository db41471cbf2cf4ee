/** Sampling parameters of a request: only numbers, never text. */
import { ApiError } from './api-errors.ts';
import type { JsonReader } from './json-reader.ts';

/** The parameters that the workload trace records, in the order in which it lists them. */
export const SAMPLING_NAMES = [
  'temperature',
  'top_p',
  'top_k',
  'min_p',
  'max_tokens',
  'presence_penalty',
  'frequency_penalty',
  'repetition_penalty',
  'n',
] as const;
export type SamplingName = (typeof SAMPLING_NAMES)[number];
export type Sampling = { [Name in SamplingName]?: number };

/** Keys that limit the response's length. `n_predict` is llama.cpp's, and takes precedence there. */
const LENGTH_KEYS = ['max_tokens', 'max_completion_tokens', 'max_output_tokens', 'n_predict'] as const;
/** The length keys that endpoints document. */
export type LengthKey = Exclude<(typeof LENGTH_KEYS)[number], 'n_predict'>;

export const SAMPLING_KEYS = [...new Set([...SAMPLING_NAMES, ...LENGTH_KEYS])];
export type SamplingKey = (typeof SAMPLING_KEYS)[number];
/** The numbers of one body, by their keys. */
export type SamplingNumbers = { [Key in SamplingKey]?: number };

/** Keys with numbers that count against the limits of a user, a key or a project. */
const COUNTED: ReadonlySet<SamplingKey> = new Set([...LENGTH_KEYS, 'n']);

/** Maximum length of a number. A longer one is not a valid parameter. */
const NUMBER_MAX_BYTES = 24;

/**
 * Reads the value at `pos` if it is a number. The engine decides about any other value.
 * @throws ApiError 400 if the value is not a number, but an engine might read it as a number of tokens or responses,
 * for example `"128"`
 */
export function readSampling(reader: JsonReader, key: SamplingKey, into: SamplingNumbers): void {
  const start = reader.pos;
  reader.value(1);
  const value = numberOf(reader.bytes, start, reader.pos);
  if (value !== undefined) into[key] = value;
  else if (COUNTED.has(key) && reader.bytes[start] !== 0x6e) {
    const message = `'${key}' must be a whole number or null, but is ${kindOf(reader.bytes[start])}.`;
    throw new ApiError('invalid_request', message, { param: key });
  }
}

/** The kind of a JSON value that is neither a valid number nor null, by its first byte. */
function kindOf(first = 0): string {
  switch (String.fromCharCode(first)) {
    case '"':
      return 'a string';
    case '[':
      return 'an array';
    case '{':
      return 'an object';
    case 't':
    case 'f':
      return 'a boolean';
    default:
      return `a number that is too large or longer than ${NUMBER_MAX_BYTES} characters`;
  }
}

function numberOf(bytes: Uint8Array, start: number, end: number): number | undefined {
  if (end - start > NUMBER_MAX_BYTES) return undefined;
  const text = String.fromCharCode(...bytes.subarray(start, end));
  const value = /^-?\d/.test(text) ? Number(text) : Number.NaN;
  return Number.isFinite(value) ? value : undefined;
}

/**
 * Interprets the numbers for an endpoint. If a body sets several length keys, the largest number counts, because
 * engines differ in which key they use. The result has no `max_tokens` if none of the endpoint's keys is set, or if one
 * of the numbers is negative, which means "no limit". The user's limits reserve `max_tokens` tokens.
 * @param keys the endpoint's own keys
 */
export function samplingOf(numbers: SamplingNumbers, keys: readonly LengthKey[]): Sampling {
  const { max_tokens: _1, max_completion_tokens: _2, max_output_tokens: _3, n_predict, ...sampling } = numbers;
  const own = keys.flatMap((key) => numbers[key] ?? []);
  const all = n_predict === undefined ? own : [...own, n_predict];
  if (own.length === 0 || all.some((length) => length < 0)) return sampling;
  return { ...sampling, max_tokens: Math.max(...all) };
}
