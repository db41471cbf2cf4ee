/** Reads usage, completeness and finish reason from an SSE response. */
import { ByteSearch, encodeUtf8, sameBytes, startsWith } from './byte-search.ts';
import { parseJsonObject } from './continuation/parse-json-object.ts';
import type { Endpoint } from './endpoints.ts';
import { mediaOf } from './media-usage.ts';
import { type SseEvent, type SseFields, SseSplitter, sseFields } from './sse-splitter.ts';
import {
  ABORTED,
  completeUsage,
  isObject,
  type MeterResult,
  readFinish,
  readUsageJson,
  type UsageMeter,
  type UsageMeterOptions,
  type UsageReport,
} from './token-usage.ts';

/** Maximum length of a usage event that is held back. Its length does not depend on the response's length. */
const EVENT_BUFFER_MAX_BYTES = 64 * 1024;

const LF = 0x0a;
const DONE = encodeUtf8('[DONE]');
const ERROR = encodeUtf8('"error"');
const USAGE = new ByteSearch('"usage"');
const FINISH = new ByteSearch('"finish_reason"');
const CHOICES = new ByteSearch('"choices"');
const INDEX = new ByteSearch('"index"');
const OPEN_OBJECT = 0x7b;
const ONE = 0x31;
const NINE = 0x39;
/** Maximum number of choices of one response that are tracked. If a further choice ends early, this is not noticed. */
const CHOICES_MAX = 1024;
const QUOTE = 0x22;

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

/**
 * Maximum length of an error that is parsed. A longer one quotes the request, and is recognized only by its first key.
 */
const ERROR_MAX_BYTES = 4096;

/**
 * True for an engine's error: `error` is its first key, or it has no choices and `error` is a later key, as in older
 * versions of vLLM.
 */
function isError(data: Uint8Array): boolean {
  if (data[0] !== OPEN_OBJECT) return false;
  let pos = 1;
  while (isSpace(data[pos])) pos++;
  if (startsWith(data, ERROR, pos)) return true;
  if (data.length > ERROR_MAX_BYTES || CHOICES.indexIn(data) >= 0) return false;
  const value = parseJsonObject(data);
  return value?.object === 'error' || isObject(value?.error);
}

/**
 * True if the key occurs with a value of this kind, at any depth. If a text quotes the key, the key's quotes are
 * escaped, so it does not match.
 */
function hasKey(data: Uint8Array, key: ByteSearch, from: number, to = from): boolean {
  for (let at = key.indexIn(data); at >= 0; at = key.indexIn(data, at + 1)) {
    let pos = at + key.bytes.length;
    while (isSpace(data[pos])) pos++;
    if (data[pos] !== 0x3a) continue;
    pos++;
    while (isSpace(data[pos])) pos++;
    const begin = data[pos] ?? 0;
    if (begin >= from && begin <= to) return true;
  }
  return false;
}

export class StreamMeter implements UsageMeter {
  readonly #endpoint: Endpoint;
  readonly #options: UsageMeterOptions;
  readonly #splitter = new SseSplitter();
  #report: UsageReport = {};
  /** The last `usage` object, which may have seconds of audio instead of tokens. */
  #usage: unknown;
  #images = 0;
  /** Number of events with a piece of the response, which is about the number of tokens. */
  #pieces = 0;
  #complete = false;
  #sawLast = false;
  #finish: string | undefined;
  /** The highest index of a choice. */
  #lastChoice = 0;
  /** Choices that reported their finish reason. */
  readonly #finished = new Set<number>();
  /** True if the engine reported its own failure. No further data is expected. */
  #failed = false;
  /**
   * True if the engine gave the response up. The end of the response is not passed on, so that the client sees a broken
   * connection.
   */
  #aborted = false;
  #swallowing = false;
  /** True if usage events are removed. All of them are, because some engines send one after every chunk. */
  readonly #dropping: boolean;
  /** True if the unfinished event is too long to be held back, so that its bytes are passed on. */
  #passing = false;
  /** True if the last event was removed and ended with a CR. If an LF follows, it is removed, too. */
  #droppedLast = false;

  constructor(endpoint: Endpoint, options: UsageMeterOptions) {
    this.#endpoint = endpoint;
    this.#options = options;
    this.#dropping = options.dropUsageEvent && endpoint.injectUsage;
  }

  get sawLastEvent(): boolean {
    return this.#sawLast;
  }

  /**
   * Holds back an event until it is complete, because a client cannot use a part of it, and the event may have to be
   * removed.
   */
  push(chunk: Uint8Array): Uint8Array[] {
    if (chunk.length === 0 || this.#swallowing) return [];
    const out: Uint8Array[] = [];
    // A view stays valid while the splitter adds to its buffer, because the splitter starts a new buffer for each
    // event.
    const hasBegun = this.#splitter.pendingBytes > 0;
    const holds = !this.#passing;
    let held = hasBegun && holds ? this.#splitter.pending : undefined;
    /** Everything before this offset was passed on or dropped. */
    let from = 0;
    /** End of the last complete event, or of a line end that spans two chunks. */
    let at = 0;
    const give = (end: number) => {
      if (held !== undefined && end > 0) out.push(held);
      held = undefined;
      if (end > from) out.push(from === 0 && end === chunk.length ? chunk : chunk.subarray(from, end));
      from = end;
    };
    if (chunk[0] === LF && this.#splitter.endedWithCr) {
      at = 1;
      if (this.#droppedLast) from = 1;
    }
    this.#droppedLast = false;
    this.#splitter.push(chunk, (event) => {
      if (this.#swallowing) return;
      const isUsage = this.#readEvent(event);
      // If the beginning of an event was passed on, its rest is passed on, too.
      if (this.#aborted && (holds || at > 0 || !hasBegun)) {
        if (at > from) give(at);
        this.#swallowing = true;
        return;
      }
      if (isUsage && this.#dropping && !this.#passing) {
        if (at > from) give(at);
        held = undefined;
        from = event.end;
        this.#droppedLast = event.end === chunk.length;
      }
      this.#passing = false;
      at = event.end;
    });
    if (this.#swallowing) return out;
    if (this.#splitter.pendingBytes > EVENT_BUFFER_MAX_BYTES) this.#passing = true;
    give(this.#passing ? chunk.length : at);
    return out;
  }

  /** @returns true if the event is the usage event that `include_usage` causes */
  #readEvent(event: SseEvent): boolean {
    const fields = sseFields(event);
    if (fields.error && fields.data === undefined) this.#aborted = true;
    if (fields.data === undefined) return false;
    switch (this.#endpoint.terminal.kind) {
      case 'done':
        return this.#readChunk(fields.data, event.tooLong);
      case 'event':
        this.#readTypedEvent(fields, fields.data, event.tooLong, this.#endpoint.terminal.types);
        return false;
      case 'none':
        return false;
    }
  }

  /** Reads an event of a chat or a completion: an object with `choices`, or the final `[DONE]`. */
  #readChunk(data: Uint8Array, tooLong: boolean): boolean {
    if (sameBytes(data, DONE)) {
      this.#sawLast = true;
      this.#complete = !this.#failed;
      return false;
    }
    if (isError(data)) {
      this.#failed = true;
      return false;
    }
    const hasUsage = !tooLong && hasKey(data, USAGE, OPEN_OBJECT);
    const hasFinish = !tooLong && hasKey(data, FINISH, QUOTE);
    const hasMore = !tooLong && hasKey(data, INDEX, ONE, NINE);
    const chunk = hasUsage || hasFinish || hasMore ? parseJsonObject(data) : undefined;
    const choices = chunk?.choices;
    if (hasUsage) {
      const report = readUsageJson(this.#endpoint.usage, chunk?.usage);
      this.#usage = chunk?.usage ?? this.#usage;
      if (report !== undefined) this.#report = report;
    }
    if ((hasFinish || hasMore) && Array.isArray(choices)) this.#readChoices(choices);
    const isUsageEvent = isObject(chunk?.usage) && Array.isArray(choices) && choices.length === 0;
    if (!isUsageEvent) this.#pieces++;
    return isUsageEvent;
  }

  #readChoices(choices: readonly unknown[]): void {
    for (const choice of choices) {
      if (!isObject(choice)) continue;
      const { index = 0 } = choice;
      const finish = readFinish(choice.finish_reason);
      this.#finish ??= finish;
      if (finish === ABORTED) this.#aborted = true;
      if (typeof index !== 'number' || !(index >= 0 && index < CHOICES_MAX)) continue;
      this.#lastChoice = Math.max(this.#lastChoice, index);
      if (finish !== undefined) this.#finished.add(index);
    }
  }

  /**
   * Reads an event of /v1/responses, /v1/messages or /v1/images. Every event has a type, both in its `event` field and in its data.
   */
  #readTypedEvent(fields: SseFields, data: Uint8Array, tooLong: boolean, terminal: readonly string[]): void {
    let object: Record<string, unknown> | undefined;
    let type = fields.event;
    if (type === undefined) {
      object = tooLong ? undefined : parseJsonObject(data);
      type = typeof object?.type === 'string' ? object.type : '';
    }
    if (type.endsWith('delta') && type !== 'message_delta') {
      this.#pieces++;
      return;
    }
    if (type === 'error') this.#failed = true;
    const isTerminal = terminal.includes(type);
    if (isTerminal) this.#sawLast = this.#complete = true;
    if (isTerminal && this.#endpoint.media === 'images') this.#images++;
    if (tooLong || !(isTerminal || hasKey(data, USAGE, OPEN_OBJECT))) return;
    object ??= parseJsonObject(data);
    if (object === undefined) return;
    if (this.#endpoint.usage === 'images') this.#report = readUsageJson('images', object.usage) ?? this.#report;
    else if (this.#endpoint.usage === 'responses') this.#readResponse(object.response, isTerminal);
    else this.#readMessage(type, object);
  }

  #readResponse(response: unknown, isTerminal: boolean): void {
    if (!isTerminal || !isObject(response)) return;
    this.#report = readUsageJson('responses', response.usage) ?? this.#report;
    this.#finish = readFinish(response.status);
  }

  /**
   * `message_start` has the prompt's tokens, and `message_delta` the completion's tokens so far. The last value of each
   * counts.
   */
  #readMessage(type: string, object: Record<string, unknown>): void {
    if (type === 'message_start') {
      const usage = isObject(object.message) ? readUsageJson('anthropic', object.message.usage) : undefined;
      if (usage === undefined) return;
      // The `output_tokens` of `message_start` is a placeholder. If it were used, a stream that breaks later would be
      // billed as one token.
      // So is a prompt of 0 tokens, from an engine that counts at the end.
      const { completion: _, prompt, ...known } = usage;
      this.#report = { ...this.#report, ...known, ...(prompt ? { prompt } : {}) };
    } else if (type === 'message_delta') {
      this.#report = { ...this.#report, ...readUsageJson('anthropic', object.usage) };
      const reason = isObject(object.delta) ? object.delta.stop_reason : undefined;
      this.#finish = readFinish(reason) ?? this.#finish;
    }
  }

  end(): MeterResult {
    const flush = this.#readRest();
    return {
      flush,
      usage: {
        ...completeUsage(this.#endpoint, this.#options, this.#report, this.#pieces),
        ...mediaOf(this.#endpoint, this.#options, { usage: this.#usage, images: this.#images }),
      },
      complete: this.#complete && !this.#aborted,
      ...(this.#aborted && { aborted: true }),
      ...(this.#isCut && { cut: true }),
      ...(this.#finish !== undefined && { finish: this.#finish }),
    };
  }

  /**
   * True if neither the terminal event nor the finish reason of each choice has arrived. If a proxy speaks HTTP/1.0 to
   * the engine (nginx's default), only this shows that an engine died. Always false for endpoints without token counts,
   * such as transcriptions, because engines end them differently.
   */
  get #isCut(): boolean {
    if (this.#complete || this.#failed || this.#endpoint.usage === 'none') return false;
    return this.#finish === undefined || (this.#lastChoice > 0 && this.#finished.size <= this.#lastChoice);
  }

  /** Reads the last event if it has no blank line, because some engines omit the last blank line. */
  #readRest(): Uint8Array[] {
    const rest = this.#splitter.rest();
    if (rest === undefined || this.#swallowing) return [];
    const isUsage = this.#readEvent(rest);
    return (isUsage && this.#dropping) || this.#aborted || this.#passing ? [] : [rest.bytes];
  }
}
