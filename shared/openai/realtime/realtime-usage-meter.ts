/** Counts the tokens of a realtime session from the engine's messages as they pass. */
import { decodeUtf8 } from '../byte-search.ts';
import {
  completeUsage,
  isObject,
  type MeterResult,
  readUsageJson,
  type UsageMeter,
  type UsageMeterOptions,
  type UsageReport,
} from '../token-usage.ts';
import { RecordReader } from './message-records.ts';

/** Messages with usage are short. A longer one is audio, and is not parsed. */
const PARSED_MAX_BYTES = 256 * 1024;

/**
 * The messages that end a generation, and have its usage: OpenAI's `response.done`, and the transcriptions of OpenAI
 * and vLLM. An engine that repeats its usage in other messages is counted once.
 */
const DONE: ReadonlySet<string> = new Set([
  'response.done',
  'transcription.done',
  'conversation.item.input_audio_transcription.completed',
]);

/** The endpoint's kind of usage does not matter, because each message has one of two forms. */
const COUNTED = { usage: 'openai' } as const;

export class RealtimeUsageMeter implements UsageMeter {
  readonly #options: UsageMeterOptions;
  readonly #records = new RecordReader();
  readonly sawLastEvent = false;
  readonly #sum = { prompt: 0, completion: 0, cached: 0, reasoning: 0 };
  #broken = false;
  #closed = false;

  constructor(options: UsageMeterOptions) {
    this.#options = options;
  }

  push(chunk: Uint8Array): Uint8Array[] {
    if (chunk.length === 0) return [];
    if (!this.#broken) this.#count(chunk);
    return [chunk];
  }

  #count(chunk: Uint8Array): void {
    try {
      for (const { kind, bytes } of this.#records.push(chunk)) {
        if (kind === 'close') this.#closed = true;
        if (kind === 'text' && bytes.length <= PARSED_MAX_BYTES) this.#read(decodeUtf8(bytes));
      }
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.#broken = true;
    }
  }

  #read(text: string): void {
    if (!text.includes('"usage"')) return;
    const message = parse(text);
    if (!isObject(message) || !DONE.has(String(message.type))) return;
    const usage = message.usage ?? (isObject(message.response) ? message.response.usage : undefined);
    const report: UsageReport = readUsageJson('responses', usage) ?? readUsageJson('openai', usage) ?? {};
    for (const key of ['prompt', 'completion', 'cached', 'reasoning'] as const)
      this.#sum[key] = Math.min(Number.MAX_SAFE_INTEGER, this.#sum[key] + (report[key] ?? 0));
  }

  end(): MeterResult {
    const usage = completeUsage(COUNTED, this.#options, this.#sum, undefined);
    return { flush: [], usage, complete: this.#closed && !this.#broken };
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
