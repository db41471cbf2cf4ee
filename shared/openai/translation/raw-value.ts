/**
 * Reads JSON one level at a time. A value keeps its bytes as they were written, so that numbers, schemas and members
 * that are unknown here can be passed on unchanged.
 */
import { ApiError } from '../api-errors.ts';
import { BOM, decodeUtf8, startsWith } from '../byte-search.ts';
import { JsonReader } from '../json-reader.ts';
import { quoteForMessage } from '../quote-for-message.ts';

/** Maximum items of one array and members of one object: 16 MiB of `{},` would otherwise become 1 GiB of views. */
const ENTRIES_MAX = 10_000;

const STRING = 0x22;
const ARRAY = 0x5b;
const OBJECT = 0x7b;
const NULL = 0x6e;

export class RawValue {
  readonly bytes: Uint8Array;
  /** Place of the value in the body, such as `messages[2].content`. Empty for the body. */
  readonly path: string;

  private constructor(bytes: Uint8Array, path: string) {
    this.bytes = bytes;
    this.path = path;
  }

  /** @throws ApiError `invalid_json` */
  static parse(bytes: Uint8Array): RawValue {
    const reader = new JsonReader(bytes);
    if (startsWith(bytes, BOM)) reader.pos = BOM.length;
    reader.peek();
    const start = reader.pos;
    reader.value(0);
    const { pos: end } = reader;
    if (reader.peek() !== -1) reader.fail('something follows the value');
    return new RawValue(bytes.subarray(start, end), '');
  }

  get isString(): boolean {
    return this.bytes[0] === STRING;
  }

  get isArray(): boolean {
    return this.bytes[0] === ARRAY;
  }

  get isNull(): boolean {
    return this.bytes[0] === NULL;
  }

  get isTrue(): boolean {
    return this.raw === 'true';
  }

  /** The value as it was written. */
  get raw(): string {
    return decodeUtf8(this.bytes);
  }

  /** The text of a string. @throws ApiError `invalid_type` */
  text(): string {
    const value: unknown = this.isString ? JSON.parse(this.raw) : undefined;
    if (typeof value !== 'string') return this.#refuse('a string');
    return value;
  }

  /** The items of an array. @throws ApiError */
  items(): RawValue[] {
    if (!this.isArray) return this.#refuse('an array');
    const reader = new JsonReader(this.bytes);
    const items: RawValue[] = [];
    reader.array(() => {
      const start = reader.pos;
      reader.value(1);
      if (items.length >= ENTRIES_MAX) this.#tooMany();
      items.push(new RawValue(this.bytes.subarray(start, reader.pos), `${this.path}[${items.length}]`));
    });
    return items;
  }

  /** The members of an object. @throws ApiError, also if a name occurs twice */
  members(): Members {
    if (this.bytes[0] !== OBJECT) return this.#refuse('an object');
    const reader = new JsonReader(this.bytes);
    const members = new Map<string, RawValue>();
    reader.object((key) => {
      const start = reader.pos;
      reader.value(1);
      const name = reader.text(key);
      const path = this.path === '' ? name : `${this.path}.${name}`;
      if (members.has(name))
        throw new ApiError('duplicate_key', `The key '${quoteForMessage(path)}' occurs more than once.`, {
          param: quoteForMessage(path),
        });
      if (members.size >= ENTRIES_MAX) this.#tooMany();
      members.set(name, new RawValue(this.bytes.subarray(start, reader.pos), path));
    });
    return new Members(this, members);
  }

  #refuse(expected: string): never {
    const where = this.path === '' ? 'The body' : `'${quoteForMessage(this.path)}'`;
    throw new ApiError('invalid_type', `${where} must be ${expected}.`, { param: quoteForMessage(this.path) });
  }

  #tooMany(): never {
    throw new ApiError('invalid_value', `'${quoteForMessage(this.path)}' has more than ${ENTRIES_MAX} entries.`, {
      param: quoteForMessage(this.path),
    });
  }
}

/** The members of one object. The reader does not know the members that it did not take. */
export class Members {
  readonly of: RawValue;
  readonly #rest: Map<string, RawValue>;

  constructor(of: RawValue, members: Map<string, RawValue>) {
    this.of = of;
    this.#rest = members;
  }

  /** Takes a member. Undefined if it is absent or null. */
  take(name: string): RawValue | undefined {
    const value = this.#rest.get(name);
    this.#rest.delete(name);
    return value === undefined || value.isNull ? undefined : value;
  }

  /** Takes a member that must be there. @throws ApiError */
  need(name: string): RawValue {
    const value = this.take(name);
    if (value !== undefined) return value;
    const path = this.of.path === '' ? name : `${this.of.path}.${name}`;
    throw new ApiError('invalid_request', `'${quoteForMessage(path)}' is missing.`, { param: quoteForMessage(path) });
  }

  /** Takes members that have no effect here. */
  drop(...names: readonly string[]): void {
    for (const name of names) this.#rest.delete(name);
  }

  /** The members that were not taken. */
  get rest(): ReadonlyMap<string, RawValue> {
    return this.#rest;
  }

  /** @throws ApiError if a member was not taken and is not null */
  end(): void {
    for (const value of this.#rest.values()) if (!value.isNull) throw untranslatable(value.path);
  }
}

/** The error of a part of a request that has no counterpart in a chat request. */
export function untranslatable(path: string, what = ''): ApiError {
  const message = `This node's engine serves /v1/chat/completions only, and '${quoteForMessage(path)}'${what} cannot be translated to it.`;
  return new ApiError('invalid_request', message, { param: quoteForMessage(path) });
}

/** Writes an object from values that are JSON already. Undefined values are left out. */
export function writeObject(members: Iterable<readonly [name: string, raw: string | undefined]>): string {
  const parts: string[] = [];
  for (const [name, raw] of members) if (raw !== undefined) parts.push(`${JSON.stringify(name)}:${raw}`);
  return `{${parts.join(',')}}`;
}

export const writeArray = (items: readonly string[]): string => `[${items.join(',')}]`;
