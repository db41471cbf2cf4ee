/** The request of a line in its original bytes. Parsing and serializing would lose digits of integers above 2^53. */
import { concat } from '../collections/concat.ts';
import { ApiError } from '../openai/api-errors.ts';
import { type Edit, EditedBody, joinEdits } from '../openai/body-edits.ts';
import { decodeUtf8, encodeUtf8 } from '../openai/byte-search.ts';
import { JsonReader } from '../openai/json-reader.ts';
import { duplicateKey } from '../openai/known-body-keys.ts';
import { reasoningBudgetEdits } from '../openai/reasoning-budget.ts';
import { scanJson, scanObject } from '../openai/scan-json-body.ts';

/** The member's name in vLLM and SGLang. */
const PRIORITY_KEY = 'priority';
/**
 * Maximum length of a key that is decoded. A longer key cannot be one of the searched keys, even if it is written with
 * escapes.
 */
const KEY_MAX_BYTES = 128;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

const LINE_KEYS: ReadonlySet<string> = new Set(['custom_id', 'method', 'url', 'body']);

/**
 * The bytes of the line's `body`; undefined if it has none.
 * @param line UTF-8
 * @param look called with `pos` at the body, which it must read to the end; if absent, the body is skipped
 * @throws ApiError 400 if the line is not a JSON object, is nested too deeply, or has one of a line's own keys twice
 */
export function lineBody(line: Uint8Array, look?: (reader: JsonReader) => void): Uint8Array | undefined {
  const seen = new Set<string>();
  let body: Uint8Array | undefined;
  const reader = new JsonReader(line);
  eachMember(reader, (key) => {
    if (seen.has(key)) throw duplicateKey(key);
    if (LINE_KEYS.has(key)) seen.add(key);
    const start = reader.pos;
    if (key === 'body' && look !== undefined) look(reader);
    else reader.value(0);
    if (key === 'body') body = line.subarray(start, reader.pos);
  });
  return body;
}

/**
 * Applies the checks of ordinary requests to a line, because its bytes go to the engine unchanged.
 * @param line UTF-8
 * @returns why the body is refused; undefined if it is valid
 * @throws ApiError 400 as `lineBody`
 */
export function lineFault(line: Uint8Array): ApiError | undefined {
  let fault: ApiError | undefined;
  lineBody(line, (reader) => {
    const start = reader.pos;
    if (reader.peek() !== OPEN_OBJECT) return reader.value(0);
    try {
      scanObject(reader);
    } catch (error) {
      if (!(error instanceof ApiError) || error.code === 'invalid_json') throw error;
      fault = error;
      reader.pos = start;
      reader.value(0);
    }
  });
  return fault;
}

/** Fields that the node sets in the request to its engine, even if the line sets them differently. */
interface EngineOverrides {
  priority?: number | undefined;
  /** Maximum number of reasoning tokens. If the line sets a lower limit, the lower one applies. */
  thinkingTokens?: number | undefined;
}

/** @throws ApiError 400; RangeError if no gateway has checked the body */
export function engineRequest(body: Uint8Array, { priority, thinkingTokens }: EngineOverrides): string {
  const { topEnd, thinking } = scanJson(body);
  const edits = new EditedBody(
    joinEdits(
      priority === undefined ? [] : priorityEdits(body, topEnd, priority),
      thinkingTokens === undefined
        ? []
        : reasoningBudgetEdits({ topEnd, ...(thinking && { value: thinking }) }, thinkingTokens),
    ),
  );
  return decodeUtf8(concat([...edits.push(body), ...edits.end()]));
}

/** If the line has the key twice, both values are replaced. */
function priorityEdits(body: Uint8Array, topEnd: number, priority: number): Edit[] {
  const edits: Edit[] = [];
  const reader = new JsonReader(body);
  eachMember(reader, (key) => {
    const at = reader.pos;
    reader.value(1);
    if (key === PRIORITY_KEY) edits.push({ at, remove: reader.pos - at, insert: encodeUtf8(String(priority)) });
  });
  return edits.length > 0 ? edits : [{ at: topEnd, remove: 0, insert: encodeUtf8(`,"${PRIORITY_KEY}":${priority}`) }];
}

/** The JSON text of an object's member. If a key occurs twice, its last value counts. @throws ApiError 400 */
export function memberText(object: string, name: string): string | undefined {
  const bytes = encodeUtf8(object);
  let text: string | undefined;
  const reader = new JsonReader(bytes);
  eachMember(reader, (key) => {
    const start = reader.pos;
    reader.value(1);
    if (key === name) text = decodeUtf8(bytes.subarray(start, reader.pos));
  });
  return text;
}

/**
 * The JSON text of an object with this value of a member, which is added if it is missing. If the key occurs twice, the
 * last value is replaced, because it counts. @throws ApiError 400
 */
export function withMember(object: string, name: string, value: string): string {
  const bytes = encodeUtf8(object);
  let edit: Edit | undefined;
  let members = 0;
  const reader = new JsonReader(bytes);
  eachMember(reader, (key) => {
    members += 1;
    const at = reader.pos;
    reader.value(1);
    if (key === name) edit = { at, remove: reader.pos - at, insert: encodeUtf8(value) };
  });
  const added = `${members > 0 ? ',' : ''}${JSON.stringify(name)}:${value}`;
  edit ??= { at: bytes.lastIndexOf(CLOSE_OBJECT), remove: 0, insert: encodeUtf8(added) };
  const edited = new EditedBody([edit]);
  return decodeUtf8(concat([...edited.push(bytes), ...edited.end()]));
}

/**
 * @param member receives a key (empty if it is too long), with `pos` at its value, which it must consume
 * @throws ApiError 400
 */
function eachMember(reader: JsonReader, member: (key: string) => void): void {
  reader.object((at) => member(at.end - at.start > KEY_MAX_BYTES ? '' : reader.text(at)));
  if (reader.peek() !== -1) reader.fail('something follows the object');
}
