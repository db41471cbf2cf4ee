/**
 * One stream made of several engines' responses. The first engine's events pass unchanged, but only complete ones:
 * because no part of an event was sent, the next engine's response can follow. Of later engines only text, finish
 * reason and usage are used, so that the client sees one id, one role and one `[DONE]`.
 */
import { encodeUtf8, sameBytes } from '../byte-search.ts';
import { type SseEvent, SseSplitter, sseFields } from '../sse-splitter.ts';
import { isObject } from '../token-usage.ts';
import { type CompletionChunk, readChunk } from './completion-chunk.ts';
import type { ContinuableKind, ContinuationPlan } from './continuation-plan.ts';

/** Maximum text of a response that is remembered, in UTF-16 units. A longer response cannot be continued. */
export const SPLICED_TEXT_MAX_CHARS = 512 * 1024;

/** An event longer than this is passed on in pieces, and no node can continue after it. */
const EVENT_MAX_BYTES = 256 * 1024;

const LF = 0x0a;
const DONE = encodeUtf8('[DONE]');
const DONE_EVENT = encodeUtf8('data: [DONE]\n\n');
const LINE_FEED = Uint8Array.of(LF);

/** Fields of an event that stay the same on every node. */
const HEAD = ['id', 'object', 'created', 'model', 'system_fingerprint', 'service_tier'] as const;

type Event = Record<string, unknown>;

export class SplicedStream {
  readonly #kind: ContinuableKind;
  readonly #wantsUsage: boolean;
  #splitter = new SseSplitter(2 * EVENT_MAX_BYTES);
  /** True while the first engine's response is read. */
  #first = true;
  /** True if all further bytes are passed on without being parsed. */
  #verbatim = false;
  #head: Event | undefined;
  #roleSent = false;
  #pieces: string[] = [];
  #chars = 0;
  #events = 0;
  #finish: string | undefined;
  #usageSent = false;
  #done = false;
  #obstacle: string | undefined;
  #fault: string | undefined;
  #withheld: Uint8Array | undefined;
  /** Number of tokens that the previous engines generated. */
  #before = 0;

  constructor({ kind, wantsUsage }: Pick<ContinuationPlan, 'kind' | 'wantsUsage'>) {
    this.#kind = kind;
    this.#wantsUsage = wantsUsage;
  }

  /** The text that the client has. */
  get text(): string {
    if (this.#pieces.length > 1) this.#pieces = [this.#pieces.join('')];
    return this.#pieces[0] ?? '';
  }

  /** True if `push` returns only complete events. */
  get readsEvents(): boolean {
    return !this.#verbatim;
  }

  get textChars(): number {
    return this.#chars;
  }

  /** Number of events with text. At least this many tokens were generated. */
  get textEvents(): number {
    return this.#events;
  }

  /** True if the stream is complete. Further data changes nothing. */
  get done(): boolean {
    return this.#done;
  }

  /** True if the whole text of the response has arrived. */
  get finished(): boolean {
    return this.#finish !== undefined;
  }

  /** Why no node could continue the stream if it broke now; undefined if one could. */
  get obstacle(): string | undefined {
    if (this.#obstacle !== undefined) return this.#obstacle;
    const { text } = this;
    if (text.endsWith('\ufffd') || !text.isWellFormed()) return 'the stream broke off inside a character';
    return undefined;
  }

  /** Why this engine's response must not be read further. The caller treats this as a break of the stream. */
  get fault(): string | undefined {
    return this.#fault;
  }

  /** The event in which the engine reported the fault. It is passed on if no node continues the stream. */
  get withheld(): Uint8Array | undefined {
    return this.#withheld;
  }

  /** Forbids that another node continues the stream. */
  forbid(why: string): void {
    this.#obstacle ??= why;
    if (this.#first) this.#pieces = [];
  }

  /** Returns the bytes that may be sent now, in order. May set `fault`. */
  push(chunk: Uint8Array): Uint8Array[] {
    if (this.#verbatim) return [chunk];
    const out: Uint8Array[] = [];
    for (let from = 0; from < chunk.length; from += EVENT_MAX_BYTES) {
      this.#push(chunk.subarray(from, from + EVENT_MAX_BYTES), out);
    }
    return out;
  }

  #push(chunk: Uint8Array, out: Uint8Array[]): void {
    if (this.#fault !== undefined) return;
    if (this.#verbatim) return void out.push(chunk);
    // The last event ended with a CR and was passed on. This LF belongs to the same line end.
    if (this.#first && chunk[0] === LF && this.#splitter.endedWithCr) out.push(LINE_FEED);
    this.#splitter.push(chunk, (event) => {
      const passed = this.#fault === undefined ? this.#event(event) : undefined;
      if (passed !== undefined) out.push(passed);
    });
    if (this.#fault !== undefined) return;
    const tooLong = this.#splitter.pendingBytes > EVENT_MAX_BYTES;
    if (tooLong && !this.#first) this.#fault = 'an event is too long';
    if (tooLong) this.forbid('an event is too long');
    if (!this.#first || this.#obstacle === undefined) return;
    this.#verbatim = true;
    if (this.#splitter.pendingBytes > 0) out.push(this.#splitter.pending.slice());
  }

  #event(event: SseEvent): Uint8Array | undefined {
    const { data } = sseFields(event);
    if (this.#done) return this.#first ? event.bytes : undefined;
    if (data === undefined) return event.bytes;
    if (sameBytes(data, DONE)) {
      this.#done = true;
      return this.#first ? event.bytes : DONE_EVENT;
    }
    const reading = readChunk(this.#kind, data);
    switch (reading.kind) {
      case 'chunk':
        return this.#first ? this.#take(reading.chunk, event.bytes) : this.#adapt(reading.chunk);
      case 'error':
        return this.#onError(reading.error.isEngines, event.bytes);
      case 'odd':
        return this.#onOdd(reading.why, event.bytes);
    }
  }

  #onError(isEngines: boolean, bytes: Uint8Array): Uint8Array | undefined {
    if (!isEngines) {
      this.forbid('the engine refused it');
      return bytes;
    }
    this.#fault = 'the engine reported an error';
    this.#withheld = bytes.slice();
    return undefined;
  }

  #onOdd(why: string, bytes: Uint8Array): Uint8Array | undefined {
    if (!this.#first) {
      this.#fault = why;
      return undefined;
    }
    this.forbid(why);
    return bytes;
  }

  #take(chunk: CompletionChunk, bytes: Uint8Array): Uint8Array {
    this.#head ??= headOf(chunk.object);
    this.#note(chunk);
    return bytes;
  }

  #note({ text, role, finish, usage, choice }: CompletionChunk): void {
    if (role) this.#roleSent = true;
    if (finish !== undefined) this.#finish = finish;
    if (usage !== undefined && choice === undefined) this.#usageSent = true;
    if (text === '') return;
    this.#events++;
    this.#chars += text.length;
    if (this.#chars > SPLICED_TEXT_MAX_CHARS) this.forbid('its response is too long');
    if (this.#obstacle === undefined) this.#pieces.push(text);
  }

  /** Converts a chunk of a later engine to the form of the first engine's. */
  #adapt(chunk: CompletionChunk): Uint8Array | undefined {
    const { object, text, role, finish, choice } = chunk;
    const head = this.#head ?? headOf(object);
    if (object.model !== undefined && head.model !== undefined && object.model !== head.model) {
      this.#fault = 'the next engine serves a different model';
      return undefined;
    }
    const repeated = this.#roleSent || !role;
    if (choice !== undefined && text === '' && finish === undefined && repeated) return undefined;
    if (choice === undefined && (!this.#wantsUsage || chunk.usage === undefined)) return undefined;
    const adapted: Event = { ...object, ...head };
    if (choice !== undefined && role && repeated) adapted.choices = [{ ...choice, delta: { content: text } }];
    if (chunk.usage !== undefined) adapted.usage = this.#sum(chunk.usage);
    this.#head = head;
    this.#note(chunk);
    return eventOf(adapted);
  }

  /**
   * The usage of the whole response. The text of previous engines was part of this engine's prompt, and perhaps of its
   * cache hits, so its tokens are moved from the prompt to the response.
   */
  #sum(usage: Readonly<Record<string, unknown>>): Event {
    if (this.#before === 0) return { ...usage };
    const prompt = Math.max(0, countOf(usage.prompt_tokens) - this.#before);
    const completion = countOf(usage.completion_tokens) + this.#before;
    const details = usage.prompt_tokens_details;
    const cached = isObject(details) ? Math.min(countOf(details.cached_tokens), prompt) : 0;
    return {
      ...usage,
      ...(isObject(details) && { prompt_tokens_details: { ...details, cached_tokens: cached } }),
      prompt_tokens: prompt,
      completion_tokens: completion,
      total_tokens: prompt + completion,
      otela_estimated: true,
    };
  }

  /** Call before the next engine's response. @param before number of tokens that the client has so far, if known */
  continueWith(before: number): void {
    this.#first = false;
    this.#splitter = new SseSplitter(2 * EVENT_MAX_BYTES);
    this.#fault = undefined;
    this.#withheld = undefined;
    this.#before = before;
  }

  /**
   * The events that are missing at the end of a broken stream if its text is complete.
   * @param prompt estimated tokens of the prompt
   * @param completion estimated tokens of the response
   */
  ending(prompt: number, completion: number): Uint8Array[] {
    const out: Uint8Array[] = [];
    const head = this.#head ?? {};
    if (this.#finish === undefined) {
      const nothing = this.#kind === 'chat' ? { delta: {} } : { text: '' };
      out.push(eventOf({ ...head, choices: [{ index: 0, ...nothing, logprobs: null, finish_reason: 'length' }] }));
      this.#finish = 'length';
    }
    if (this.#wantsUsage && !this.#usageSent) {
      const counts = { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
      out.push(eventOf({ ...head, choices: [], usage: { ...counts, otela_estimated: true } }));
    }
    this.#done = true;
    out.push(DONE_EVENT);
    return out;
  }
}

function headOf(object: Readonly<Record<string, unknown>>): Event {
  return Object.fromEntries(HEAD.flatMap((key) => (object[key] === undefined ? [] : [[key, object[key]]])));
}

function eventOf(object: Event): Uint8Array {
  return encodeUtf8(`data: ${JSON.stringify(object)}\n\n`);
}

function countOf(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : 0;
}
