/** Reads an engine's answer of /v1/chat/completions, whole or as events, for a writer of another API's answer. */
import { concat } from '../../collections/concat.ts';
import { tryParseJson } from '../../text/parse-json.ts';
import { decodeUtf8 } from '../byte-search.ts';
import { type SseEvent, SseSplitter, sseFields } from '../sse-splitter.ts';
import { ABORTED, isObject, readFinish, readUsageJson, type UsageReport } from '../token-usage.ts';

/** Maximum text of one answer, because a writer keeps it to repeat it at the end. */
const ANSWER_MAX_CHARS = 16 * 1024 * 1024;
/** Maximum calls of tools in one answer. Each is an item of the answer. */
const CALLS_MAX = 128;
/** Maximum parts of one answer, for example if an engine changes between text and reasoning. */
const PARTS_MAX = 512;
/** Maximum length of a name, an id or a model. */
const NAME_MAX_CHARS = 1024;

/** The engine's answer cannot be read. Another node may answer. The message is for the provider. */
export class EngineFault extends Error {}

interface ChatCall {
  index: number;
  /** Absent in all pieces of a call but the first. */
  id: string | undefined;
  name: string | undefined;
  input: string;
}

/** What one event, or a whole answer, adds. */
export interface ChatPiece {
  model: string | undefined;
  reasoning: string;
  text: string;
  calls: readonly ChatCall[];
  finish: string | undefined;
  /** The stop sequence that ended the text. */
  stop: string | undefined;
  usage: UsageReport | undefined;
}

/** Writes an answer of another API, as events or whole. */
export interface AnswerWriter {
  /** Events of one piece. @throws EngineFault */
  push(piece: ChatPiece): string;
  /** The last events. */
  end(): string;
  /** Undefined until the engine has said why it ended. */
  readonly finish: string | undefined;
  /** The whole answer. */
  whole(): string;
  /** An error that the engine reports inside its stream. */
  error(message: string): string;
}

/** An event stream of chat, translated as it arrives. */
export class ChatStream {
  readonly #writer: AnswerWriter;
  readonly #splitter = new SseSplitter();
  #chars = 0;
  #ended = false;

  constructor(writer: AnswerWriter) {
    this.#writer = writer;
  }

  /** The translated events of this chunk. @throws EngineFault */
  push(chunk: Uint8Array): string {
    let out = '';
    this.#splitter.push(chunk, (event) => {
      out += this.#read(event);
    });
    return out;
  }

  /** Call at the end of the engine's stream. @throws EngineFault if it ended early */
  end(): string {
    const rest = this.#splitter.rest();
    const last = rest === undefined ? '' : this.#read(rest);
    if (this.#ended) return last;
    return last + this.#finish();
  }

  #finish(): string {
    if (this.#writer.finish === undefined) throw new EngineFault('the engine’s stream ended early');
    this.#ended = true;
    return this.#writer.end();
  }

  /** An error that the engine reports after it began. The stream ends without its last event. */
  #fail(message: string): string {
    this.#ended = true;
    return this.#writer.error(message);
  }

  #read(event: SseEvent): string {
    if (this.#ended) return '';
    if (event.tooLong) throw new EngineFault('an event of the engine is longer than 1 MiB');
    const { data, error } = sseFields(event);
    if (error === true) return this.#fail('the engine failed');
    const text = data === undefined ? '' : decodeUtf8(data).trim();
    if (text === '') return ''; // a comment
    if (text === '[DONE]') return this.#finish();
    const chunk = tryParseJson(text);
    if (!isObject(chunk)) throw new EngineFault('an event of the engine is not a JSON object');
    const failure = errorOf(chunk);
    if (failure !== undefined) return this.#fail(failure);
    const piece = readChat(chunk, 'delta');
    this.#chars += sizeOf(piece);
    if (this.#chars > ANSWER_MAX_CHARS) throw new EngineFault('the engine’s answer is too long to translate');
    return this.#writer.push(piece);
  }
}

/** Translates a whole answer. @throws EngineFault */
export function translateAnswer(writer: AnswerWriter, chunks: readonly Uint8Array[]): string {
  const answer = tryParseJson(decodeUtf8(concat(chunks)));
  if (!isObject(answer) || !Array.isArray(answer.choices) || !isObject(answer.choices[0]))
    throw new EngineFault('the engine’s answer is not a chat completion');
  writer.push(readChat(answer, 'message'));
  if (writer.finish === undefined) throw new EngineFault('the engine’s answer has no finish_reason');
  return writer.whole();
}

/** The message of an error in OpenAI's form, or in the forms of older engines. */
export function errorOf(value: unknown): string | undefined {
  if (!isObject(value)) return undefined;
  const { error, object, detail, message } = value;
  if (isObject(error)) return typeof error.message === 'string' ? error.message : 'the engine failed';
  if (typeof error === 'string') return error;
  if (object === 'error') return typeof message === 'string' ? message : 'the engine failed';
  return typeof detail === 'string' ? detail : undefined;
}

function readChat(value: Record<string, unknown>, part: 'delta' | 'message'): ChatPiece {
  const choices = Array.isArray(value.choices) ? value.choices : [];
  const choice: unknown = choices[0];
  const given = isObject(choice) ? choice : {};
  const said = isObject(given[part]) ? given[part] : {};
  const finish = readFinish(given.finish_reason);
  if (finish === ABORTED) throw new EngineFault('the engine gave up its answer');
  const stop = given.stop_reason;
  return {
    model: nameIn(value.model),
    // vLLM, Ollama and others name it `reasoning`; llama.cpp, SGLang and older ones `reasoning_content`.
    reasoning: textIn(said.reasoning_content) || textIn(said.reasoning),
    text: textIn(said.content) + textIn(said.refusal),
    calls: callsIn(said.tool_calls),
    finish,
    stop: finish === 'stop' && typeof stop === 'string' && stop.length <= NAME_MAX_CHARS ? stop : undefined,
    usage: readUsageJson('openai', value.usage),
  };
}

const textIn = (value: unknown): string => (typeof value === 'string' ? value : '');
const nameIn = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' && value.length <= NAME_MAX_CHARS ? value : undefined;

function callsIn(value: unknown): ChatCall[] {
  if (!Array.isArray(value)) return [];
  if (value.length > CALLS_MAX) throw new EngineFault(`the engine calls more than ${CALLS_MAX} tools`);
  return value.map((call: unknown, at) => {
    if (!isObject(call)) throw new EngineFault('a tool call of the engine is not an object');
    const called = isObject(call.function) ? call.function : {};
    const { index = at, arguments: input } = { index: call.index, arguments: called.arguments };
    if (typeof index !== 'number' || !Number.isInteger(index) || index < 0 || index >= CALLS_MAX)
      throw new EngineFault(`a tool call of the engine has no index from 0 to ${CALLS_MAX - 1}`);
    // Some engines write the arguments as an object.
    const text = isObject(input) ? JSON.stringify(input) : textIn(input);
    return { index, id: nameIn(call.id), name: nameIn(called.name), input: text };
  });
}

function sizeOf({ reasoning, text, calls }: ChatPiece): number {
  return calls.reduce((sum, { input }) => sum + input.length, reasoning.length + text.length);
}

/** One part of an answer, in the order in which the model wrote them. */
export interface AnswerPart {
  kind: 'reasoning' | 'text' | 'call';
  /** Text, reasoning, or the arguments of a call. */
  text: string;
  /** Of a call. */
  call?: { index: number; id: string; name: string };
}

/** What a piece did to one part. */
export type PartChange =
  | { kind: 'begin'; at: number }
  | { kind: 'end'; at: number }
  | { kind: 'delta'; at: number; text: string };

/** Collects the parts of an answer. One part is open at a time, as both APIs require. */
export class AnswerParts {
  readonly parts: AnswerPart[] = [];
  readonly #id: string;
  #open = false;

  /** @param id from which ids of calls are made that the engine omits */
  constructor(id: string) {
    this.#id = id;
  }

  /** @throws EngineFault */
  push({ reasoning, text, calls }: ChatPiece): PartChange[] {
    const changes: PartChange[] = [];
    if (reasoning !== '') this.#add(changes, 'reasoning', reasoning);
    if (text !== '') this.#add(changes, 'text', text);
    for (const call of calls) this.#addCall(changes, call);
    return changes;
  }

  /** Ends the open part. */
  end(): PartChange[] {
    const changes: PartChange[] = [];
    this.#close(changes);
    return changes;
  }

  #add(changes: PartChange[], kind: 'reasoning' | 'text', text: string): void {
    if (!this.#open || this.parts.at(-1)?.kind !== kind) this.#begin(changes, { kind, text: '' });
    this.#append(changes, text);
  }

  #addCall(changes: PartChange[], { index, id, name, input }: ChatCall): void {
    const last = this.parts.at(-1);
    const isSame =
      this.#open && last?.call?.index === index && (name === undefined || id === undefined || last.call.id === id);
    if (!isSame) {
      if (this.parts.some(({ call }) => call?.index === index && (id === undefined || call.id === id)))
        throw new EngineFault('the engine continues a tool call after another one');
      if (name === undefined) throw new EngineFault('a tool call of the engine has no name');
      const own = id ?? `call_${this.#id}_${this.parts.length}`;
      this.#begin(changes, { kind: 'call', text: '', call: { index, id: own, name } });
    }
    if (input !== '') this.#append(changes, input);
  }

  #begin(changes: PartChange[], part: AnswerPart): void {
    this.#close(changes);
    if (this.parts.length >= PARTS_MAX) throw new EngineFault('the engine’s answer has too many parts');
    this.parts.push(part);
    this.#open = true;
    changes.push({ kind: 'begin', at: this.parts.length - 1 });
  }

  #append(changes: PartChange[], text: string): void {
    const at = this.parts.length - 1;
    const part = this.parts[at];
    if (part === undefined) return;
    part.text += text;
    changes.push({ kind: 'delta', at, text });
  }

  #close(changes: PartChange[]): void {
    if (!this.#open) return;
    this.#open = false;
    changes.push({ kind: 'end', at: this.parts.length - 1 });
  }
}

/** One server-sent event with a type. */
export const writeEvent = (type: string, data: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;

/** Marks an answer that was translated. An early stream has no headers of the node, so the body says it, too. */
export const TRANSLATED = { otela_translated: 'chat.completions' } as const;
