/** Writes an answer of OpenAI's /v1/responses from pieces of a chat answer. */
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
import type { EchoedMembers } from './responses-request.ts';

interface WriterOptions {
  id: string;
  model: string;
  /** Seconds since 1970. */
  createdAt: number;
  echoed: EchoedMembers;
}

/** Why a response is incomplete, by the engine's finish reason. */
const INCOMPLETE: ReadonlyMap<string, string> = new Map([
  ['length', 'max_output_tokens'],
  ['content_filter', 'content_filter'],
]);

export class ResponsesWriter implements AnswerWriter {
  readonly #options: WriterOptions;
  readonly #parts: AnswerParts;
  #model: string;
  #begun = false;
  #sequence = 0;
  #finish: string | undefined;
  #usage: UsageReport | undefined;

  constructor(options: WriterOptions) {
    this.#options = options;
    this.#model = options.model;
    this.#parts = new AnswerParts(options.id);
  }

  get finish(): string | undefined {
    return this.#finish;
  }

  push(piece: ChatPiece): string {
    this.#usage = piece.usage ?? this.#usage;
    if (!this.#begun) this.#model = piece.model ?? this.#model;
    this.#finish = piece.finish ?? this.#finish;
    const first = this.#begin();
    return (
      first +
      this.#parts
        .push(piece)
        .map((change) => this.#events(change))
        .join('')
    );
  }

  #begin(): string {
    if (this.#begun) return '';
    this.#begun = true;
    const response = this.#response('in_progress', []);
    return this.#event('response.created', { response }) + this.#event('response.in_progress', { response });
  }

  #event(type: string, data: object): string {
    return writeEvent(type, { sequence_number: this.#sequence++, ...data });
  }

  #events(change: PartChange): string {
    const part = this.#parts.parts[change.at];
    if (part === undefined) return '';
    const [output_index, item_id] = [change.at, this.#itemId(part, change.at)];
    const where = part.kind === 'call' ? { item_id, output_index } : { item_id, output_index, content_index: 0 };
    const { delta, done, text } = EVENTS[part.kind];
    if (change.kind === 'delta') {
      const more = part.kind === 'text' ? { logprobs: [] } : {};
      return this.#event(delta, { ...where, delta: change.text, ...more });
    }
    if (change.kind === 'begin') {
      const added = this.#event('response.output_item.added', {
        output_index,
        item: this.#item(part, change.at, false),
      });
      if (part.kind === 'call') return added;
      return added + this.#event('response.content_part.added', { ...where, part: contentOf(part.kind, '') });
    }
    const more = part.kind === 'text' ? { logprobs: [] } : {};
    const name = part.call === undefined ? {} : { name: part.call.name };
    const ended = this.#event(done, { ...where, ...name, [text]: part.text, ...more });
    const content =
      part.kind === 'call'
        ? ''
        : this.#event('response.content_part.done', { ...where, part: contentOf(part.kind, part.text) });
    const item = this.#item(part, change.at, true);
    return ended + content + this.#event('response.output_item.done', { output_index, item });
  }

  end(): string {
    const events =
      this.#begin() +
      this.#parts
        .end()
        .map((change) => this.#events(change))
        .join('');
    const type = INCOMPLETE.has(this.#finish ?? '') ? 'response.incomplete' : 'response.completed';
    return events + this.#event(type, { response: this.#ended() });
  }

  whole(): string {
    return JSON.stringify(this.#ended());
  }

  error(message: string): string {
    const error = { message, type: 'server_error', param: null, code: 'upstream_error' };
    return this.#event('error', { code: error.code, message, param: null, error });
  }

  #ended(): object {
    const output = this.#parts.parts.map((part, at) => this.#item(part, at, true));
    return this.#response(INCOMPLETE.has(this.#finish ?? '') ? 'incomplete' : 'completed', output);
  }

  #itemId({ kind }: AnswerPart, at: number): string {
    return `${{ reasoning: 'rs', text: 'msg', call: 'fc' }[kind]}_${this.#options.id}_${at}`;
  }

  #item(part: AnswerPart, at: number, isDone: boolean): object {
    const { kind, text, call } = part;
    const id = this.#itemId(part, at);
    const status = isDone ? 'completed' : 'in_progress';
    if (call !== undefined)
      return { type: 'function_call', id, status, call_id: call.id, name: call.name, arguments: isDone ? text : '' };
    const content = isDone ? [contentOf(kind, text)] : [];
    if (kind === 'reasoning') return { type: 'reasoning', id, status, summary: [], content };
    return { type: 'message', id, status, role: 'assistant', content };
  }

  #response(status: 'in_progress' | 'completed' | 'incomplete', output: readonly object[]): object {
    const { id, createdAt, echoed } = this.#options;
    const echo = (name: string, otherwise: unknown): unknown =>
      echoed[name] === undefined ? otherwise : JSON.parse(echoed[name]);
    const reason = status === 'incomplete' ? INCOMPLETE.get(this.#finish ?? '') : undefined;
    return {
      id: `resp_${id}`,
      object: 'response',
      created_at: createdAt,
      status,
      background: false,
      error: null,
      incomplete_details: reason === undefined ? null : { reason },
      instructions: echo('instructions', null),
      max_output_tokens: echo('max_output_tokens', null),
      metadata: echo('metadata', {}),
      model: this.#model,
      output,
      parallel_tool_calls: echo('parallel_tool_calls', true),
      previous_response_id: null,
      reasoning: echo('reasoning', { effort: null, summary: null }),
      store: false,
      temperature: echo('temperature', null),
      text: echo('text', { format: { type: 'text' } }),
      tool_choice: echo('tool_choice', 'auto'),
      tools: echo('tools', []),
      top_p: echo('top_p', null),
      truncation: 'disabled',
      usage: status === 'in_progress' ? null : usageOf(this.#usage),
      ...TRANSLATED,
    };
  }
}

/** Names of the events of each kind of part, and of the member with its whole text. */
const EVENTS = {
  reasoning: { delta: 'response.reasoning_text.delta', done: 'response.reasoning_text.done', text: 'text' },
  text: { delta: 'response.output_text.delta', done: 'response.output_text.done', text: 'text' },
  call: {
    delta: 'response.function_call_arguments.delta',
    done: 'response.function_call_arguments.done',
    text: 'arguments',
  },
} as const;

function contentOf(kind: AnswerPart['kind'], text: string): object {
  return kind === 'reasoning'
    ? { type: 'reasoning_text', text }
    : { type: 'output_text', text, annotations: [], logprobs: [] };
}

/** Null if the engine counted nothing: a zero would be charged as counted. */
function usageOf(usage: UsageReport | undefined): object | null {
  if (usage === undefined) return null;
  const { prompt = 0, completion = 0, cached = 0, reasoning = 0 } = usage;
  return {
    input_tokens: prompt,
    input_tokens_details: { cached_tokens: cached },
    output_tokens: completion,
    output_tokens_details: { reasoning_tokens: reasoning },
    total_tokens: prompt + completion,
  };
}
