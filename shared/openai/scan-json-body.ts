/** Finds the few top-level keys that a gateway needs in a JSON body, without parsing the rest. */

import { ApiError } from './api-errors.ts';
import { BOM, startsWith } from './byte-search.ts';
import { JsonReader, type StringSpan } from './json-reader.ts';
import {
  BUDGET_KEY,
  duplicateKey,
  isSamplingKey,
  KNOWN_KEYS,
  type KnownKey,
  keyInOtherCase,
  knownKeyOf,
} from './known-body-keys.ts';
import { readMetadata } from './metadata-member.ts';
import { readSampling, type SamplingKey, type SamplingNumbers } from './sampling-parameters.ts';

/** Byte range of a value in the body: `end` is the offset after the last byte. */
export interface ByteSpan {
  start: number;
  end: number;
}

interface Switch extends ByteSpan {
  value: 'true' | 'false' | 'null' | 'other';
}

/**
 * Members of `stream_options`. `continuous_usage_stats` exists at vLLM and SGLang: it requests counts in each chunk,
 * and has no effect without `include_usage`.
 */
const SWITCHES = { include_usage: 'includeUsage', continuous_usage_stats: 'continuousUsage' } as const;

type Switches = { [K in (typeof SWITCHES)[keyof typeof SWITCHES]]?: Switch };

function isSwitch(name: string): name is keyof typeof SWITCHES {
  return Object.hasOwn(SWITCHES, name);
}

const SWITCH_MAX_CHARS = Math.max(...Object.keys(SWITCHES).map((name) => name.length));

type StreamOptions =
  | (ByteSpan & Switches & { kind: 'object'; empty: boolean })
  | (ByteSpan & { kind: 'null' | 'other' });

/** The position of BUDGET_KEY in a body, or the position at which to insert it. */
export interface BudgetPosition {
  /** Position of the value; absent if the key is absent. */
  value?: { start: number; end: number; tokens: number | undefined };
  /** Offset of the final top-level `}`. */
  topEnd: number;
}

export interface JsonScan {
  /** The span includes the quotes. */
  model?: ByteSpan & { value: string };
  stream: boolean;
  streamOptions?: StreamOptions;
  /** Members that are strings; bounded, see request-metadata.ts. */
  metadata?: Record<string, string>;
  /** Absent if longer than 512 characters, because the gateway uses it only to keep a conversation at one node. */
  user?: string;
  promptCacheKey?: string;
  /** Id of the stored response that the request continues. Absent if longer than 512 characters: no engine has it. */
  previousResponseId?: string;
  /** True if the body says `store: false`. */
  unstored?: boolean;
  /** True if the body says `background: true`. */
  background?: boolean;
  /** Absent if the body sets no sampling parameter. */
  sampling?: SamplingNumbers;
  /** Limit of reasoning tokens; absent if the body sets none. */
  thinking?: NonNullable<BudgetPosition['value']>;
  /** Offset of the final top-level `}`. */
  topEnd: number;
  /** True for `{}`. */
  empty: boolean;
}

/** Returns true if all bytes are well-formed UTF-8 (RFC 3629). */
export type Utf8Check = (bytes: Uint8Array) => boolean;

const MAX_MODEL_CHARS = 256;
const MAX_HINT_CHARS = 512;
const NUMBER_MAX_BYTES = 12;
/** `\uXXXX` is the longest encoding of one UTF-16 unit. */
const BYTES_PER_CHAR = 6;

/** The key's bit in a 32-bit mask. */
function bitOf(name: KnownKey): number {
  return 1 << KNOWN_KEYS.indexOf(name);
}

class Scanner {
  readonly #reader: JsonReader;
  /** One bit per key that occurred. */
  #seen = 0;
  readonly #scan: JsonScan = { stream: false, topEnd: 0, empty: true };
  /** One bit per key that occurred in another case. */
  #otherCase = 0;

  constructor(reader: JsonReader) {
    this.#reader = reader;
  }

  /** Scans the object. Leaves the reader after it. */
  run(): JsonScan {
    const reader = this.#reader;
    const scan = this.#scan;
    const first = reader.peek();
    if (first === -1) throw new ApiError('invalid_json', 'The request body is empty; a JSON object is expected.');
    if (first !== 0x7b) {
      reader.value(0);
      reader.fail('the body must be an object', 0);
    }
    scan.topEnd = reader.object((key) => this.#member(key));
    const twice = KNOWN_KEYS.find((_, index) => (this.#otherCase & this.#seen & (1 << index)) !== 0);
    if (twice !== undefined) throw duplicateKey(twice);
    return scan;
  }

  #member(key: StringSpan): void {
    this.#scan.empty = false;
    const name = knownKeyOf(this.#reader, key);
    if (name === undefined) {
      const other = keyInOtherCase(this.#reader, key);
      if (other !== undefined) this.#inOtherCase(other);
      this.#reader.value(1);
      return;
    }
    if ((this.#seen & bitOf(name)) !== 0) throw duplicateKey(name);
    this.#seen |= bitOf(name);
    if (!isSamplingKey(name)) return this.#listed(name);
    this.#scan.sampling ??= {};
    readSampling(this.#reader, name, this.#scan.sampling);
  }

  #inOtherCase(name: KnownKey): void {
    // The value is checked, so no engine may read another one.
    if (isSamplingKey(name) || name === 'previous_response_id') {
      throw new ApiError('invalid_request', `Write the key '${name}' in lower case.`, { param: name });
    }
    this.#otherCase |= bitOf(name);
  }

  #listed(name: Exclude<KnownKey, SamplingKey>): void {
    const scan = this.#scan;
    switch (name) {
      case 'model':
        scan.model = this.#model();
        return;
      case 'stream':
        scan.stream = this.#stream();
        return;
      case 'stream_options':
        scan.streamOptions = this.#streamOptions();
        return;
      case 'metadata': {
        const metadata = readMetadata(this.#reader);
        if (metadata !== undefined) scan.metadata = metadata;
        return;
      }
      case 'user': {
        const user = this.#hint();
        if (user !== undefined) scan.user = user;
        return;
      }
      case BUDGET_KEY:
        scan.thinking = this.#number();
        return;
      case 'prompt_cache_key': {
        const key = this.#hint();
        if (key !== undefined) scan.promptCacheKey = key;
        return;
      }
      case 'previous_response_id': {
        const id = this.#hint();
        if (id !== undefined) scan.previousResponseId = id;
        return;
      }
      case 'store':
        scan.unstored = this.#word(1).word === 'false';
        return;
      case 'background':
        scan.background = this.#word(1).word === 'true';
        return;
    }
  }

  #model(): ByteSpan & { value: string } {
    const value = this.#text(MAX_MODEL_CHARS);
    if (value.text === undefined || value.text === '') {
      const message = `'model' must be a non-empty string of at most ${MAX_MODEL_CHARS} characters.`;
      throw new ApiError('invalid_request', message, { param: 'model' });
    }
    return { value: value.text, start: value.start, end: value.end };
  }

  /**
   * Reads `stream`. Only a boolean is accepted, because engines that convert `1` or `"yes"` would stream a response
   * that was prepared as non-streaming.
   */
  #stream(): boolean {
    const { word } = this.#word(1);
    if (word === 'other') throw new ApiError('invalid_request', `'stream' must be a boolean.`, { param: 'stream' });
    return word === 'true';
  }

  #streamOptions(): StreamOptions {
    const reader = this.#reader;
    if (reader.bytes[reader.pos] !== 0x7b) {
      const { word, start, end } = this.#word(1);
      return { kind: word === 'null' ? 'null' : 'other', start, end };
    }
    const start = reader.pos;
    let empty = true;
    const switches: Switches = {};
    reader.object((key) => {
      empty = false;
      const name = key.end - key.start <= 2 + SWITCH_MAX_CHARS * BYTES_PER_CHAR ? reader.text(key) : '';
      const at = this.#word(2);
      if (!isSwitch(name)) return;
      if (switches[SWITCHES[name]] !== undefined) throw duplicateKey(`stream_options.${name}`);
      switches[SWITCHES[name]] = { value: at.word, start: at.start, end: at.end };
    });
    return { kind: 'object', start, end: reader.pos, empty, ...switches };
  }

  #number(): NonNullable<BudgetPosition['value']> {
    const reader = this.#reader;
    const start = reader.pos;
    reader.value(1);
    const end = reader.pos;
    const text = end - start > NUMBER_MAX_BYTES ? '' : String.fromCharCode(...reader.bytes.subarray(start, end));
    return { start, end, tokens: /^\d+$/.test(text) ? Number(text) : undefined };
  }

  #hint(): string | undefined {
    return this.#text(MAX_HINT_CHARS).text;
  }

  /** The value at `pos` if it is a string of at most `maxChars` UTF-16 units. */
  #text(maxChars: number): ByteSpan & { text: string | undefined } {
    const reader = this.#reader;
    const start = reader.pos;
    if (reader.bytes[start] !== 0x22) {
      reader.value(1);
      return { start, end: reader.pos, text: undefined };
    }
    const escaped = reader.string();
    const end = reader.pos;
    if (end - start > 2 + maxChars * BYTES_PER_CHAR) return { start, end, text: undefined };
    const text = reader.text({ start, end, escaped });
    return { start, end, text: text.length > maxChars ? undefined : text };
  }

  #word(depth: number): ByteSpan & { word: 'true' | 'false' | 'null' | 'other' } {
    const reader = this.#reader;
    const start = reader.pos;
    const first = reader.bytes[start];
    reader.value(depth);
    const span = { start, end: reader.pos };
    switch (first) {
      case 0x74:
        return { ...span, word: 'true' };
      case 0x66:
        return { ...span, word: 'false' };
      case 0x6e:
        return { ...span, word: 'null' };
      default:
        return { ...span, word: 'other' };
    }
  }
}

/**
 * Checks the whole body and finds the listed keys.
 * @param isUtf8 the host's own check, if it has one, which makes no text
 * @throws ApiError 400: `invalid_json` with the byte offset, `duplicate_key`, or `invalid_request` for a listed key of
 * the wrong type
 */
export function scanJson(bytes: Uint8Array, isUtf8: Utf8Check = decodesAsUtf8): JsonScan {
  requireUtf8(bytes, isUtf8);
  const reader = new JsonReader(bytes);
  const scan = new Scanner(reader).run();
  if (reader.peek() !== -1) reader.fail('something follows the object');
  return scan;
}

/**
 * Like `scanJson`, but for an object inside other JSON, which the caller has checked to be UTF-8. Starts at `pos`, and
 * leaves it after the object.
 */
export function scanObject(reader: JsonReader): JsonScan {
  return new Scanner(reader).run();
}

/**
 * The last offset at or before `end` at which a character ends. A character has at most three bytes after its first
 * one.
 */
function letterEnd(bytes: Uint8Array, end: number): number {
  if (end >= bytes.length) return bytes.length;
  for (let back = 0; back < 4; back++) {
    if (((bytes[end - back] ?? 0) & 0xc0) !== 0x80) return end - back;
  }
  return end; // The text is not UTF-8, which the decoder reports.
}

/** The body is decoded in pieces of this size, because one text of the whole body would use another 33 MiB. */
const DECODED_BYTES = 64 * 1024;

/**
 * Requires UTF-8 without a byte order mark (RFC 8259 §8.1). Otherwise some engines would refuse the request, and others
 * would read a different text than the gateway checked.
 */
function requireUtf8(bytes: Uint8Array, isUtf8: Utf8Check): void {
  if (startsWith(bytes, BOM))
    throw new ApiError('invalid_json', 'The request body begins with a byte order mark; save it as UTF-8 without one.');
  if (!isUtf8(bytes)) throw new ApiError('invalid_json', 'The request body is not valid UTF-8.');
}

function decodesAsUtf8(bytes: Uint8Array): boolean {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  try {
    for (let at = 0, end = 0; at < bytes.length; at = end) {
      end = letterEnd(bytes, at + DECODED_BYTES);
      decoder.decode(bytes.subarray(at, end));
    }
    return true;
  } catch {
    return false;
  }
}

/** @throws ApiError 400 with param `model` */
export function requireModel(scan: { model?: string | { value: string } }): string {
  const model = typeof scan.model === 'string' ? scan.model : scan.model?.value;
  if (model !== undefined) return model;
  throw new ApiError('invalid_request', `Missing required parameter: 'model'.`, { param: 'model' });
}
