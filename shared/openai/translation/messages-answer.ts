/** Writes an answer of Anthropic's /v1/messages from pieces of a chat answer. */
import type { UsageReport } from '../token-usage.ts';
import {
  type AnswerPart,
  AnswerParts,
  type AnswerWriter,
  type ChatPiece,
  type PartChange,
  TRANSLATED,
  writeEvent,
} from './chat-answer.ts';

const STOP_REASONS: ReadonlyMap<string, string> = new Map([
  ['stop', 'end_turn'],
  ['length', 'max_tokens'],
  ['tool_calls', 'tool_use'],
  ['function_call', 'tool_use'],
  ['content_filter', 'refusal'],
]);

export class MessagesWriter implements AnswerWriter {
  readonly #id: string;
  readonly #parts: AnswerParts;
  #model: string;
  #begun = false;
  #finish: string | undefined;
  #stop: string | undefined;
  #usage: UsageReport | undefined;

  constructor(id: string, model: string) {
    this.#id = `msg_${id}`;
    this.#model = model;
    this.#parts = new AnswerParts(id);
  }

  get finish(): string | undefined {
    return this.#finish;
  }

  push(piece: ChatPiece): string {
    this.#usage = piece.usage ?? this.#usage;
    if (!this.#begun) this.#model = piece.model ?? this.#model;
    this.#finish = piece.finish ?? this.#finish;
    this.#stop = piece.stop ?? this.#stop;
    const first = this.#begin();
    return (
      first +
      this.#parts
        .push(piece)
        .map((change) => this.#event(change))
        .join('')
    );
  }

  #begin(): string {
    if (this.#begun) return '';
    this.#begun = true;
    // Most engines count tokens at the end. The client's total is that of `message_delta`.
    const usage = { input_tokens: 0, output_tokens: 0, ...usageOf(this.#usage) };
    const message = { ...this.#message([]), stop_reason: null, stop_sequence: null, usage };
    return writeEvent('message_start', { message });
  }

  #event(change: PartChange): string {
    const part = this.#parts.parts[change.at];
    if (part === undefined) return '';
    const index = change.at;
    if (change.kind === 'end') return writeEvent('content_block_stop', { index });
    if (change.kind === 'begin') return writeEvent('content_block_start', { index, content_block: emptyBlock(part) });
    return writeEvent('content_block_delta', { index, delta: deltaOf(part, change.text) });
  }

  end(): string {
    const events =
      this.#begin() +
      this.#parts
        .end()
        .map((change) => this.#event(change))
        .join('');
    const delta = { stop_reason: this.#stopReason, stop_sequence: this.#stop ?? null };
    return `${events}${writeEvent('message_delta', { delta, usage: usageOf(this.#usage) })}${writeEvent('message_stop', {})}`;
  }

  whole(): string {
    const content = this.#parts.parts.map(wholeBlock);
    const blocks = `[${content.join(',')}]`;
    const { content: _, ...message } = this.#message([]);
    const rest = { stop_reason: this.#stopReason, stop_sequence: this.#stop ?? null, usage: usageOf(this.#usage) };
    // The input of a tool is put in as the model wrote it.
    return `{"content":${blocks},${JSON.stringify({ ...message, ...rest }).slice(1)}`;
  }

  error(message: string): string {
    return writeEvent('error', { error: { type: 'api_error', message } });
  }

  get #stopReason(): string {
    if (this.#stop !== undefined) return 'stop_sequence';
    // Some engines end with `stop` after they called a tool.
    if (this.#parts.parts.some(({ kind }) => kind === 'call') && this.#finish === 'stop') return 'tool_use';
    return STOP_REASONS.get(this.#finish ?? '') ?? 'end_turn';
  }

  #message(content: readonly object[]) {
    return { id: this.#id, type: 'message', role: 'assistant', content, model: this.#model, ...TRANSLATED };
  }
}

function emptyBlock({ kind, call }: AnswerPart): object {
  if (kind === 'reasoning') return { type: 'thinking', thinking: '', signature: '' };
  return call === undefined
    ? { type: 'text', text: '' }
    : { type: 'tool_use', id: call.id, name: call.name, input: {} };
}

function deltaOf({ kind }: AnswerPart, text: string): object {
  if (kind === 'reasoning') return { type: 'thinking_delta', thinking: text };
  return kind === 'text' ? { type: 'text_delta', text } : { type: 'input_json_delta', partial_json: text };
}

function wholeBlock({ kind, text, call }: AnswerPart): string {
  if (kind === 'reasoning') return JSON.stringify({ type: 'thinking', thinking: text, signature: '' });
  if (call === undefined) return JSON.stringify({ type: 'text', text });
  return `{"input":${objectIn(text)},${JSON.stringify({ type: 'tool_use', id: call.id, name: call.name }).slice(1)}`;
}

/** The arguments if they are a JSON object; an empty object otherwise, as Anthropic's clients expect one. */
function objectIn(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? text : '{}';
  } catch {
    return '{}';
  }
}

/** Anthropic counts cached tokens beside the others. Without counts of the engine there are none. */
function usageOf(usage: UsageReport | undefined): object {
  const { prompt, completion, cached = 0 } = usage ?? {};
  return {
    ...(prompt !== undefined && { input_tokens: Math.max(0, prompt - cached), cache_read_input_tokens: cached }),
    ...(completion !== undefined && { output_tokens: completion }),
  };
}
