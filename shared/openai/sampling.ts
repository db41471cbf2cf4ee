/** How an answer was to be drawn, as far as a request says it: numbers alone, never words of it. */
import type { JsonReader } from './json.ts';

/** What is kept, by the name that requests have for it: three endpoints call the same limit by three names. */
const NAMES = {
  temperature: 'temperature',
  top_p: 'top_p',
  top_k: 'top_k',
  min_p: 'min_p',
  max_tokens: 'max_tokens',
  max_completion_tokens: 'max_tokens',
  max_output_tokens: 'max_tokens',
  presence_penalty: 'presence_penalty',
  frequency_penalty: 'frequency_penalty',
  repetition_penalty: 'repetition_penalty',
  n: 'n',
} as const;

export type SamplingKey = keyof typeof NAMES;
export type SamplingName = (typeof NAMES)[SamplingKey];
export type Sampling = { [Name in SamplingName]?: number };

export const SAMPLING_KEYS = Object.keys(NAMES) as SamplingKey[];
/** In the order in which the trace has them. */
export const SAMPLING_NAMES: readonly SamplingName[] = [...new Set(Object.values(NAMES))];

/** Longer numbers are nobody's temperature. */
const NUMBER_MAX_BYTES = 24;

/** The value at `pos` where it is a number; whatever else it is, its engine says what it thinks of it. Of two the last counts. */
export function readSampling(reader: JsonReader, key: SamplingKey, into: Sampling): void {
  const start = reader.pos;
  reader.value(1);
  const length = reader.pos - start;
  if (length > NUMBER_MAX_BYTES) return;
  let text = '';
  for (let at = start; at < reader.pos; at++) text += String.fromCharCode(reader.bytes[at] ?? 0);
  if (!/^-?\d/.test(text)) return;
  const value = Number(text);
  if (Number.isFinite(value)) into[NAMES[key]] = value;
}
