/** The request of a line as it was written: what is parsed and written anew has lost the digits of integers above 2^53. */
import { concat } from '../collections/concat.ts';
import { textOf, utf8 } from '../openai/bytes.ts';
import { type Edit, EditedBody, joinEdits } from '../openai/edits.ts';
import { JsonReader } from '../openai/json.ts';
import { duplicateKey } from '../openai/listed-keys.ts';
import { budgetEdits } from '../openai/reasoning.ts';
import { scanJson } from '../openai/scan.ts';

/** vLLM's and SGLang's. */
const PRIORITY_KEY = 'priority';
/** Longer keys are none of those that are looked for, however they are escaped. */
const KEY_MAX_BYTES = 128;

const LINE_KEYS: ReadonlySet<string> = new Set(['custom_id', 'method', 'url', 'body']);

/**
 * The bytes of the line's `body`; undefined: it has none.
 * @throws ApiError 400 where the line is no JSON object, is nested too deeply, or has one of its keys twice
 */
export function bodyOf(line: Uint8Array): Uint8Array | undefined {
  const seen = new Set<string>();
  let body: Uint8Array | undefined;
  eachMember(line, (key, start, end) => {
    if (!LINE_KEYS.has(key)) return;
    if (seen.has(key)) throw duplicateKey(key);
    seen.add(key);
    if (key === 'body') body = line.subarray(start, end);
  });
  return body;
}

/** What its node tells the engine, whatever the line says. */
export interface ToldEngine {
  priority?: number | undefined;
  /** At most: what the line says and is less stays. */
  thinkingTokens?: number | undefined;
}

/** @throws ApiError 400, RangeError: it is no body that a gateway checked */
export function requestOf(body: Uint8Array, { priority, thinkingTokens }: ToldEngine): string {
  const { topEnd, thinking } = scanJson(body);
  const edits = new EditedBody(
    joinEdits(
      priority === undefined ? [] : priorityEdits(body, topEnd, priority),
      thinkingTokens === undefined ? [] : budgetEdits({ topEnd, ...(thinking && { value: thinking }) }, thinkingTokens),
    ),
  );
  return textOf(concat([...edits.push(body), ...edits.end()]));
}

/** A line that names it twice gets ours twice. */
function priorityEdits(body: Uint8Array, topEnd: number, priority: number): Edit[] {
  const edits: Edit[] = [];
  eachMember(body, (key, start, end) => {
    if (key === PRIORITY_KEY) edits.push({ at: start, remove: end - start, insert: utf8(String(priority)) });
  });
  return edits.length > 0 ? edits : [{ at: topEnd, remove: 0, insert: utf8(`,"${PRIORITY_KEY}":${priority}`) }];
}

/** The JSON of an object's member; of two of one name the last, as everywhere. @throws ApiError 400 */
export function memberText(object: string, name: string): string | undefined {
  const bytes = utf8(object);
  let text: string | undefined;
  eachMember(bytes, (key, start, end) => {
    if (key === name) text = textOf(bytes.subarray(start, end));
  });
  return text;
}

/** @param member gets a key, empty where it is a long one, and where its value stands @throws ApiError 400 */
function eachMember(bytes: Uint8Array, member: (key: string, start: number, end: number) => void): void {
  const reader = new JsonReader(bytes);
  reader.object((at) => {
    const start = reader.pos;
    // Not one deeper: a body may be as deep as that of a request that is no line.
    reader.value(0);
    member(at.end - at.start > KEY_MAX_BYTES ? '' : reader.text(at), start, reader.pos);
  });
  if (reader.peek() !== -1) reader.fail('something follows the object');
}
