/** Usage, completeness and finish reason of an SSE answer. */
import { Needle, sameBytes, startsWith, utf8 } from './bytes.ts';
import { parseObject } from './continuation/json.ts';
import type { Endpoint } from './endpoints.ts';
import type { Meter, MeterEnd, MeterOptions } from './meter.ts';
import { type SseEvent, type SseFields, SseSplitter, sseFields } from './sse.ts';
import { isObject, readFinish, readUsage, settleUsage, type UsageReport } from './usage.ts';

/** An event that has not ended by then is not the usage event, whose size does not depend on the answer. */
const MAX_HELD_BYTES = 64 * 1024;

const LF = 0x0a;
const DONE = utf8('[DONE]');
const ERROR = utf8('"error"');
const USAGE = new Needle('"usage"');
const FINISH = new Needle('"finish_reason"');
const OPEN_OBJECT = 0x7b;
const QUOTE = 0x22;

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

/** Whether this is an object whose first key is `error`, however it is spaced. */
function isError(data: Uint8Array): boolean {
  if (data[0] !== OPEN_OBJECT) return false;
  let pos = 1;
  while (isSpace(data[pos])) pos++;
  return startsWith(data, ERROR, pos);
}

/** Whether the key stands somewhere with a value that begins so: what text merely quotes has its quotes escaped. */
function hasKey(data: Uint8Array, key: Needle, valueBegins: number): boolean {
  for (let at = key.indexIn(data); at >= 0; at = key.indexIn(data, at + 1)) {
    let pos = at + key.bytes.length;
    while (isSpace(data[pos])) pos++;
    if (data[pos] !== 0x3a) continue;
    pos++;
    while (isSpace(data[pos])) pos++;
    if (data[pos] === valueBegins) return true;
  }
  return false;
}

export class StreamMeter implements Meter {
  readonly #endpoint: Endpoint;
  readonly #options: MeterOptions;
  readonly #splitter = new SseSplitter();
  #report: UsageReport = {};
  /** Events that carried a piece of the answer: about one per token. */
  #pieces = 0;
  #complete = false;
  #finish: string | undefined;
  /** The engine said itself that it failed: nothing else is to come. */
  #failed = false;
  /** The usage event is still to come and to be left out. */
  #dropping: boolean;
  /** The unfinished event turned out too long to be held back. */
  #passing = false;
  /** The event that was left out ended with a CR: its LF may follow. */
  #droppedLast = false;
  readonly #visit = (event: SseEvent) => this.#look(event);

  constructor(endpoint: Endpoint, options: MeterOptions) {
    this.#endpoint = endpoint;
    this.#options = options;
    this.#dropping = options.dropUsageEvent && endpoint.injectUsage;
  }

  get saidLast(): boolean {
    return this.#complete;
  }

  push(chunk: Uint8Array): Uint8Array[] {
    if (chunk.length === 0) return [];
    if (this.#dropping || this.#droppedLast) return this.#pushDropping(chunk);
    this.#splitter.push(chunk, this.#visit);
    return [chunk];
  }

  #pushDropping(chunk: Uint8Array): Uint8Array[] {
    const out: Uint8Array[] = [];
    // A view that stays whole while the splitter adds to its buffer: it starts a new one for each event.
    let held = this.#passing || this.#splitter.pendingBytes === 0 ? undefined : this.#splitter.pending;
    /** Everything before is given or dropped. */
    let from = 0;
    /** End of the last complete event, or of the line end that a chunk cut in two. */
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
      const isUsage = this.#look(event);
      if (isUsage && this.#dropping && !this.#passing) {
        if (at > from) give(at);
        held = undefined;
        from = event.end;
        this.#dropping = false;
        this.#droppedLast = event.end === chunk.length;
      }
      this.#passing = false;
      at = event.end;
    });
    if (this.#dropping && this.#splitter.pendingBytes > MAX_HELD_BYTES) this.#passing = true;
    give(this.#dropping && !this.#passing ? at : chunk.length);
    return out;
  }

  /** @returns whether this is the event that `include_usage` causes */
  #look(event: SseEvent): boolean {
    const fields = sseFields(event);
    if (fields.data === undefined) return false;
    switch (this.#endpoint.terminal.kind) {
      case 'done':
        return this.#lookAtChunk(fields.data, event.tooLong);
      case 'event':
        this.#lookAtTyped(fields, fields.data, event.tooLong, this.#endpoint.terminal.types);
        return false;
      case 'none':
        return false;
    }
  }

  /** Chat and completions: objects with `choices`, then `[DONE]`. */
  #lookAtChunk(data: Uint8Array, tooLong: boolean): boolean {
    if (sameBytes(data, DONE)) {
      this.#complete = true;
      return false;
    }
    if (isError(data)) {
      this.#failed = true;
      return false;
    }
    const hasUsage = !tooLong && hasKey(data, USAGE, OPEN_OBJECT);
    const hasFinish = !tooLong && hasKey(data, FINISH, QUOTE);
    const chunk = hasUsage || hasFinish ? parseObject(data) : undefined;
    const choices = chunk?.choices;
    if (hasUsage) {
      const report = readUsage(this.#endpoint.usage, chunk?.usage);
      if (report !== undefined) this.#report = report;
    }
    if (hasFinish && Array.isArray(choices)) this.#readFinish(choices);
    const isUsageEvent = isObject(chunk?.usage) && Array.isArray(choices) && choices.length === 0;
    if (!isUsageEvent) this.#pieces++;
    return isUsageEvent;
  }

  #readFinish(choices: readonly unknown[]): void {
    for (const choice of choices) {
      if (isObject(choice)) this.#finish ??= readFinish(choice.finish_reason);
    }
  }

  /** Responses and messages: every event has a type, as its name and in its data. */
  #lookAtTyped(fields: SseFields, data: Uint8Array, tooLong: boolean, terminal: readonly string[]): void {
    let object: Record<string, unknown> | undefined;
    let type = fields.event;
    if (type === undefined) {
      object = tooLong ? undefined : parseObject(data);
      type = typeof object?.type === 'string' ? object.type : '';
    }
    if (type.endsWith('delta') && type !== 'message_delta') {
      this.#pieces++;
      return;
    }
    if (type === 'error') this.#failed = true;
    const isTerminal = terminal.includes(type);
    if (isTerminal) this.#complete = true;
    if (tooLong || !(isTerminal || hasKey(data, USAGE, OPEN_OBJECT))) return;
    object ??= parseObject(data);
    if (object === undefined) return;
    if (this.#endpoint.usage === 'responses') this.#readResponse(object.response, isTerminal);
    else this.#readMessage(type, object);
  }

  #readResponse(response: unknown, isTerminal: boolean): void {
    if (!isTerminal || !isObject(response)) return;
    this.#report = readUsage('responses', response.usage) ?? this.#report;
    this.#finish = readFinish(response.status);
  }

  /** `message_start` knows the prompt, `message_delta` the completion so far; the last word on each counts. */
  #readMessage(type: string, object: Record<string, unknown>): void {
    if (type === 'message_start') {
      const usage = isObject(object.message) ? readUsage('anthropic', object.message.usage) : undefined;
      if (usage === undefined) return;
      // Its output_tokens is a placeholder: a stream cut later would be billed as one token.
      const { completion: _, ...known } = usage;
      this.#report = { ...this.#report, ...known };
    } else if (type === 'message_delta') {
      this.#report = { ...this.#report, ...readUsage('anthropic', object.usage) };
      const reason = isObject(object.delta) ? object.delta.stop_reason : undefined;
      this.#finish = readFinish(reason) ?? this.#finish;
    }
  }

  end(): MeterEnd {
    const flush = this.#lookAtRest();
    return {
      flush,
      usage: settleUsage(this.#endpoint, this.#options, this.#report, this.#pieces),
      complete: this.#complete,
      ...(this.#isCut && { cut: true }),
      ...(this.#finish !== undefined && { finish: this.#finish }),
    };
  }

  /**
   * Neither its terminal event came nor a word why generation stopped. Behind a proxy that speaks HTTP/1.0 to it (nginx' default)
   * that is all there is to see of an engine that died. Transcriptions have no end that all engines agree on.
   */
  get #isCut(): boolean {
    return !this.#complete && this.#finish === undefined && !this.#failed && this.#endpoint.usage !== 'none';
  }

  /** Some engines end without the last blank line. */
  #lookAtRest(): Uint8Array[] {
    const rest = this.#splitter.rest();
    if (rest === undefined) return [];
    const held = this.#dropping && !this.#passing;
    return this.#look(rest) || !held ? [] : [rest.bytes];
  }
}
