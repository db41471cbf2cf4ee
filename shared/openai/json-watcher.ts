/** Follows the nesting of a JSON response that arrives in chunks, and keeps the few values that metering needs. */
import { ByteBuffer, encodeUtf8 } from './byte-search.ts';

/**
 * Maximum length of a captured value; no usage object is as long. Of a longer value only the beginning is kept, which
 * is not valid JSON.
 */
const MAX_VALUE_BYTES = 16 * 1024;
/** Maximum length of a captured key; all watched keys are shorter. */
const MAX_KEY_BYTES = 32;
/** Maximum nesting. No engine produces a response that is nested more deeply, so such a response counts as invalid. */
const MAX_DEPTH = 512;

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BACKSLASH = 0x5c;

export type WatchedKey = 'usage' | 'status' | 'stop_reason' | 'duration' | 'finish_reason';

const TOP = (['usage', 'status', 'stop_reason', 'duration'] as const satisfies readonly WatchedKey[]).map((name) => ({
  name,
  bytes: encodeUtf8(name),
}));
const DATA = encodeUtf8('data');
const CHOICES = encodeUtf8('choices');
const FINISH_REASON = encodeUtf8('finish_reason');

function isKey(gathered: ByteBuffer, wanted: Uint8Array): boolean {
  if (gathered.offered !== wanted.length) return false;
  const key = gathered.bytes();
  return wanted.every((byte, i) => key[i] === byte);
}

/** Marks bytes that matter for structure. Digits, letters, points and white space do not. */
const STRUCTURE = new Uint8Array(256);
for (const char of '"{}[],:') STRUCTURE[char.charCodeAt(0)] = 1;

/**
 * Follows only the structure: strings, brackets, keys. Everything else is validated by the client. Watches `usage`,
 * `status`, `stop_reason` and `duration` at the top level, and `choices[].finish_reason`, and counts the objects in
 * `data`. If a key occurs twice, its last value counts. If there are several finish reasons, the first counts.
 */
export class JsonWatcher {
  #state: 'before' | 'open' | 'closed' | 'garbage' = 'before';
  /** Whether each open container is an object, outermost first. At most MAX_DEPTH. */
  readonly #isObject: boolean[] = [];
  #inString = false;
  /** True if the last byte was a backslash that escapes the next byte. */
  #escape = false;
  #inChoices = false;
  #inData = false;
  #items = 0;
  /** The last string. It was a key if a colon follows. */
  readonly #lastString = new ByteBuffer(MAX_KEY_BYTES);
  #capturing: WatchedKey | undefined;
  readonly #captured = new ByteBuffer(MAX_VALUE_BYTES);
  readonly #values = new Map<WatchedKey, Uint8Array>();

  get state(): 'before' | 'open' | 'closed' | 'garbage' {
    return this.#state;
  }

  /** Number of objects in the list `data` at the top level. */
  get items(): number {
    return this.#items;
  }

  value(name: WatchedKey): Uint8Array | undefined {
    return this.#values.get(name);
  }

  push(chunk: Uint8Array): void {
    let pos = 0;
    /** Start of the captured value in this chunk. */
    let mark = 0;
    while (pos < chunk.length) {
      if (this.#state === 'garbage') return;
      if (this.#inString) {
        const end = this.#stringEnd(chunk, pos);
        this.#lastString.add(chunk.subarray(pos, end < 0 ? chunk.length : end - 1));
        if (end < 0) break;
        this.#inString = false;
        pos = end;
        continue;
      }
      const byte = chunk[pos] ?? 0;
      if (this.#state === 'open' && STRUCTURE[byte] === 0) {
        pos++;
        continue;
      }
      const wasCapturing = this.#capturing;
      if (wasCapturing !== undefined && this.#endsValue(byte)) {
        this.#captured.add(chunk.subarray(mark, pos));
        this.#keep(wasCapturing);
      }
      pos++;
      this.#structure(byte);
      if (this.#capturing !== undefined && wasCapturing === undefined) mark = pos;
    }
    if (this.#capturing !== undefined) this.#captured.add(chunk.subarray(mark));
  }

  /** Offset after the closing quote; -1 if the string continues in the next chunk. */
  #stringEnd(chunk: Uint8Array, from: number): number {
    let start = from;
    if (this.#escape) {
      this.#escape = false;
      start++;
    }
    for (let quote = chunk.indexOf(QUOTE, start); quote >= 0; quote = chunk.indexOf(QUOTE, quote + 1)) {
      if (backslashesBefore(chunk, quote, start) % 2 === 0) return quote + 1;
    }
    this.#escape = start <= chunk.length && backslashesBefore(chunk, chunk.length, start) % 2 === 1;
    return -1;
  }

  /** True if the byte follows the captured value and is not part of it. */
  #endsValue(byte: number): boolean {
    const depth = this.#capturing === 'finish_reason' ? 3 : 1;
    return this.#isObject.length === depth && (byte === COMMA || byte === 0x7d);
  }

  #keep(name: WatchedKey): void {
    const value = this.#captured.take();
    this.#capturing = undefined;
    const isFirst = !this.#values.has(name);
    if (name !== 'finish_reason' || (isFirst && value.includes(QUOTE))) this.#values.set(name, value);
  }

  #structure(byte: number): void {
    switch (this.#state) {
      case 'before':
      case 'closed':
        if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) return;
        // An answer may also begin with `[`, because some rerankers answer with a list.
        if ((byte !== 0x7b && byte !== 0x5b) || this.#state === 'closed') {
          this.#state = 'garbage';
          return;
        }
        this.#state = 'open';
        this.#open(byte === 0x7b);
        return;
      case 'open':
        this.#inside(byte);
        return;
      case 'garbage':
        return;
    }
  }

  #inside(byte: number): void {
    switch (byte) {
      case QUOTE:
        this.#inString = true;
        this.#lastString.clear();
        return;
      case COLON:
        this.#colon();
        return;
      case COMMA:
        return;
      case 0x7b:
      case 0x5b:
        this.#open(byte === 0x7b);
        return;
      default:
        this.#close(byte === 0x7d);
    }
  }

  #open(isObject: boolean): void {
    if (this.#isObject.length >= MAX_DEPTH) {
      this.#state = 'garbage';
      return;
    }
    if (isObject && this.#inData && this.#isObject.length === 2 && this.#isObject[1] === false) this.#items++;
    this.#isObject.push(isObject);
  }

  #close(isObject: boolean): void {
    if (this.#isObject.pop() !== isObject) this.#state = 'garbage';
    else if (this.#isObject.length === 0) this.#state = 'closed';
  }

  /** Handles a colon: a value begins. */
  #colon(): void {
    if (this.#isObject.at(-1) !== true || this.#capturing !== undefined) return;
    if (this.#isObject.length === 1) {
      this.#inChoices = isKey(this.#lastString, CHOICES);
      this.#inData = isKey(this.#lastString, DATA);
      this.#capturing = TOP.find((key) => isKey(this.#lastString, key.bytes))?.name;
    } else if (this.#isObject.length === 3 && this.#inChoices && isKey(this.#lastString, FINISH_REASON)) {
      this.#capturing = 'finish_reason';
    }
  }
}

function backslashesBefore(chunk: Uint8Array, end: number, from: number): number {
  let at = end;
  while (at > from && chunk[at - 1] === BACKSLASH) at--;
  return end - at;
}
