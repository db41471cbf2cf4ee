/** Reads JSON (RFC 8259) from bytes: checks the grammar and reports positions, without building values. */
import { JSON_DEPTH_MAX } from '../text/parse-json.ts';
import { ApiError } from './api-errors.ts';
import { decodeUtf8 } from './byte-search.ts';

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const END = -1;

/** Number of bytes of a string that are checked one by one. After that, checking four at a time takes less time. */
const SHORT_STRING_BYTES = 48;

/** Characters allowed after a backslash, except `u`. */
const ESCAPES = new Uint8Array(256);
for (const char of '"\\/bfnrt') ESCAPES[char.charCodeAt(0)] = 1;

/**
 * Whether each open container is an object, outermost first. All readers share this array, because a read never yields,
 * so no two reads overlap.
 */
const isObjectAt = new Uint8Array(JSON_DEPTH_MAX);

const LITERALS: Readonly<Record<number, Uint8Array>> = {
  116: Uint8Array.of(0x74, 0x72, 0x75, 0x65),
  102: Uint8Array.of(0x66, 0x61, 0x6c, 0x73, 0x65),
  110: Uint8Array.of(0x6e, 0x75, 0x6c, 0x6c),
};

const isDigit = (byte: number) => byte >= 0x30 && byte <= 0x39;
const isHex = (byte: number) => isDigit(byte) || ((byte | 0x20) >= 0x61 && (byte | 0x20) <= 0x66);

/** Position of a string in the body. */
export interface StringSpan {
  /** Offset of the opening quote. */
  start: number;
  /** Offset after the closing quote. */
  end: number;
  escaped: boolean;
}

export class JsonReader {
  readonly bytes: Uint8Array;
  pos = 0;
  #words: Int32Array | undefined;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  fail(reason: string, at = this.pos): never {
    throw new ApiError('invalid_json', `The request body is not valid JSON: ${reason} at byte ${at}.`);
  }

  /** Skips white space. Returns the next byte without consuming it, or -1 at the end. */
  peek(): number {
    const bytes = this.bytes;
    let pos = this.pos;
    let byte = bytes[pos];
    while (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) byte = bytes[++pos];
    this.pos = pos;
    return byte ?? END;
  }

  /**
   * Reads the object that begins at the next byte.
   * @param member called with `pos` at the member's value, which it must consume
   * @returns the offset of the closing brace
   */
  object(member: (key: StringSpan) => void): number {
    if (this.peek() !== OPEN_OBJECT) this.fail('expected an object');
    this.pos++;
    if (this.peek() !== CLOSE_OBJECT) {
      for (;;) {
        const start = this.pos;
        const escaped = this.string();
        const end = this.pos;
        this.#colon();
        this.peek();
        member({ start, end, escaped });
        const byte = this.peek();
        if (byte === CLOSE_OBJECT) break;
        if (byte !== COMMA) this.fail('a comma or a closing brace is missing');
        this.pos++;
        this.peek();
      }
    }
    return this.pos++;
  }

  /** Reads the array that begins at the next byte. @param item called with `pos` at the item, which it must consume */
  array(item: () => void): void {
    if (this.peek() !== OPEN_ARRAY) this.fail('expected an array');
    this.pos++;
    if (this.peek() === CLOSE_ARRAY) {
      this.pos++;
      return;
    }
    for (;;) {
      this.peek();
      item();
      const byte = this.peek();
      this.pos++;
      if (byte === CLOSE_ARRAY) return;
      if (byte !== COMMA) this.fail('a comma or a closing bracket is missing', this.pos - 1);
    }
  }

  /**
   * Skips any value.
   * @param depth number of open containers around the value
   */
  value(depth: number): void {
    let level = depth;
    for (;;) {
      const byte = this.peek();
      if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        if (this.#open(byte, level)) {
          level++;
          continue;
        }
      } else if (byte === QUOTE) this.string();
      else this.#scalar(byte);
      level = this.#close(level, depth);
      if (level === depth) return;
    }
  }

  /** Opens a container. True if it is not empty; then `pos` is at its first value. */
  #open(byte: number, level: number): boolean {
    if (level >= JSON_DEPTH_MAX) this.fail(`nesting deeper than ${JSON_DEPTH_MAX}`);
    const isObject = byte === OPEN_OBJECT;
    this.pos++;
    if (this.peek() === (isObject ? CLOSE_OBJECT : CLOSE_ARRAY)) {
      this.pos++;
      return false;
    }
    isObjectAt[level] = isObject ? 1 : 0;
    if (isObject) this.#key();
    return true;
  }

  /** Closes the containers that end after a value. Returns the level of the next value, or `depth` if there is none. */
  #close(from: number, depth: number): number {
    let level = from;
    while (level > depth) {
      const byte = this.peek();
      const isObject = isObjectAt[level - 1] === 1;
      if (byte === COMMA) {
        this.pos++;
        if (isObject) this.#key();
        return level;
      }
      if (byte !== (isObject ? CLOSE_OBJECT : CLOSE_ARRAY)) this.fail('a comma or a closing bracket is missing');
      this.pos++;
      level--;
    }
    return level;
  }

  #key(): void {
    this.peek();
    this.string();
    this.#colon();
  }

  #colon(): void {
    if (this.peek() !== COLON) this.fail('a colon is missing');
    this.pos++;
  }

  /** Skips the string at `pos`; true if it has escapes. */
  string(): boolean {
    const bytes = this.bytes;
    const start = this.pos;
    if (bytes[start] !== QUOTE) this.fail('expected a string');
    let escaped = false;
    let pos = start + 1;
    let shortEnd = pos + SHORT_STRING_BYTES;
    for (;;) {
      const byte = bytes[pos] ?? END;
      if (byte === QUOTE) break;
      if (byte === BACKSLASH) {
        escaped = true;
        if (ESCAPES[bytes[pos + 1] ?? 0] === 1) pos += 2;
        else pos = this.#unicodeEscape(pos);
      } else if (byte < 0x20)
        this.fail(byte === END ? 'an unterminated string' : 'a control character in a string', pos);
      else if (++pos >= shortEnd) {
        pos = this.#plain(pos);
        shortEnd = pos + SHORT_STRING_BYTES;
      }
    }
    this.pos = pos + 1;
    return escaped;
  }

  /** Offset after the `\u` escape at `at`. */
  #unicodeEscape(at: number): number {
    if (this.bytes[at + 1] !== 0x75) this.fail('an unknown escape', at);
    for (let i = at + 2; i < at + 6; i++) {
      if (!isHex(this.bytes[i] ?? END)) this.fail('an incomplete \\u escape', at);
    }
    return at + 6;
  }

  /**
   * Skips bytes other than quotes, backslashes and control characters, four at a time, by "has a byte equal to" and
   * "has a byte less than" of https://graphics.stanford.edu/~seander/bithacks.html. A base64 image of 32 MiB takes
   * milliseconds. Searching only for the quote would miss control characters.
   */
  #plain(from: number): number {
    const bytes = this.bytes;
    const first = bytes.byteOffset & ~3;
    this.#words ??= new Int32Array(bytes.buffer, first, (bytes.byteOffset + bytes.length - first) >> 2);
    const words = this.#words;
    const count = words.length;
    // The first 32-bit word may begin before `from`. If so, its bytes before `from` are checked again.
    let index = (bytes.byteOffset + from - first) >> 2;
    for (; index < count; index++) {
      const word = words[index] ?? 0;
      const quote = word ^ 0x22222222;
      const backslash = word ^ 0x5c5c5c5c;
      const special =
        ((word - 0x20202020) & ~word) | ((quote - 0x01010101) & ~quote) | ((backslash - 0x01010101) & ~backslash);
      if ((special & 0x80808080) !== 0) break;
    }
    return Math.max(from, first - bytes.byteOffset + (index << 2));
  }

  #scalar(byte: number): void {
    if (byte === 0x2d || isDigit(byte)) {
      this.#number();
      return;
    }
    if (byte === END) this.fail('the body ends too early');
    const literal = LITERALS[byte];
    if (literal === undefined) this.fail('an unexpected character');
    for (let i = 1; i < literal.length; i++) {
      if (this.bytes[this.pos + i] !== literal[i]) this.fail('an unexpected word');
    }
    this.pos += literal.length;
  }

  #number(): void {
    const start = this.pos;
    if (this.bytes[this.pos] === 0x2d) this.pos++;
    if (this.bytes[this.pos] === 0x30) this.pos++;
    else this.#digits(start);
    if (this.bytes[this.pos] === 0x2e) {
      this.pos++;
      this.#digits(start);
    }
    if (((this.bytes[this.pos] ?? 0) | 0x20) !== 0x65) return;
    this.pos++;
    const sign = this.bytes[this.pos];
    if (sign === 0x2b || sign === 0x2d) this.pos++;
    this.#digits(start);
  }

  #digits(start: number): void {
    const bytes = this.bytes;
    let pos = this.pos;
    while (isDigit(bytes[pos] ?? END)) pos++;
    if (pos === this.pos) this.fail('a malformed number', start);
    this.pos = pos;
  }

  /** The text of a string that was skipped. Lone surrogates are kept, and invalid UTF-8 becomes U+FFFD. */
  text(at: StringSpan): string {
    if (!at.escaped) return decodeUtf8(this.bytes.subarray(at.start + 1, at.end - 1));
    const text: unknown = JSON.parse(decodeUtf8(this.bytes.subarray(at.start, at.end)));
    return typeof text === 'string' ? text : '';
  }
}
