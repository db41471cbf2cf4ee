/** One chunk of the stream of a chat or a completion: the parts that are needed to join two streams. */
import { isObject, readFinish } from '../token-usage.ts';
import type { ContinuableKind } from './continuation-plan.ts';
import { parseJsonObject } from './parse-json-object.ts';

export interface CompletionChunk {
  object: Readonly<Record<string, unknown>>;
  text: string;
  /** True if the chunk sets the role. */
  role: boolean;
  finish: string | undefined;
  usage: Readonly<Record<string, unknown>> | undefined;
  /** The chunk's only choice. Undefined if there is none, as in the chunk with the usage. */
  choice: Readonly<Record<string, unknown>> | undefined;
}

/** An error that an engine sends in its stream. */
interface StreamError {
  /** True if the engine is at fault, not the request. */
  isEngines: boolean;
}

type ChunkReading =
  | { kind: 'chunk'; chunk: CompletionChunk }
  | { kind: 'error'; error: StreamError }
  | { kind: 'odd'; why: string };

/** @param data the `data` of an event, except `[DONE]` */
export function readChunk(kind: ContinuableKind, data: Uint8Array): ChunkReading {
  const object = parseJsonObject(data);
  if (object === undefined) return odd('an event that is not a JSON object');
  if (object.error !== undefined && object.error !== null) return { kind: 'error', error: readError(object.error) };
  const { choices, usage } = object;
  const counts = isObject(usage) ? usage : undefined;
  if (!Array.isArray(choices) || choices.length > 1) return odd('an event without exactly one choice');
  const choice: unknown = choices[0];
  if (choice === undefined) {
    return { kind: 'chunk', chunk: { object, text: '', role: false, finish: undefined, usage: counts, choice } };
  }
  if (!isObject(choice) || (choice.index !== 0 && choice.index !== undefined))
    return odd('a choice that is not the first');
  if (!isNothing(choice.logprobs)) return odd('log probabilities');
  const said = kind === 'chat' ? readDelta(choice.delta) : readCompletion(choice.text);
  if ('why' in said) return { kind: 'odd', why: said.why };
  return { kind: 'chunk', chunk: { object, ...said, finish: readFinish(choice.finish_reason), usage: counts, choice } };
}

function odd(why: string): ChunkReading {
  return { kind: 'odd', why: `the stream has ${why}` };
}

type ChunkText = { text: string; role: boolean };

function readCompletion(text: unknown): ChunkText | { why: string } {
  if (typeof text === 'string') return { text, role: false };
  return isNothing(text) ? { text: '', role: false } : { why: 'the stream has a text that is not a string' };
}

/**
 * Reads the text of a delta. A delta with anything else (a tool call, reasoning, a refusal) cannot be continued by
 * another engine.
 */
function readDelta(delta: unknown): ChunkText | { why: string } {
  if (isNothing(delta)) return { text: '', role: false };
  if (!isObject(delta)) return { why: 'the stream has a delta that is not an object' };
  for (const [key, value] of Object.entries(delta)) {
    if (key === 'role' || key === 'content' || isNothing(value)) continue;
    return { why: `the response has '${key.slice(0, 64)}'` };
  }
  const { role, content } = delta;
  if (!isNothing(content) && typeof content !== 'string')
    return { why: 'the stream has a content that is not a string' };
  return { text: typeof content === 'string' ? content : '', role: !isNothing(role) };
}

/** True for the values that engines write instead of omitting a member. */
function isNothing(value: unknown): boolean {
  return value === undefined || value === null || value === '' || (Array.isArray(value) && value.length === 0);
}

/**
 * Reads an engine's error. If its code is a 4xx status, the request is at fault, otherwise the engine. vLLM writes the
 * status as a number into `code`.
 */
function readError(error: unknown): StreamError {
  const code = isObject(error) ? Number(error.code ?? error.status ?? Number.NaN) : Number.NaN;
  return { isEngines: !(code >= 400 && code < 500) };
}
