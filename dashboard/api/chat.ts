/** One streamed answer of a model: OpenAI's chat completions as server-sent events. */
import * as z from 'zod/mini';
import { readWaitComment } from '../../shared/openai/wait-comment.ts';
import { t } from '../texts/index.ts';
import { Problem, parseProblem, send } from './client.ts';
import { SseReader } from './sse.ts';

export type Part = { type: 'text'; text: string } | { type: 'image_url'; image_url: { url: string } };

export interface ChatMessage {
  role: 'system' | 'user' | 'assistant';
  content: string | Part[];
}

interface ChatRequest {
  model: string;
  messages: ChatMessage[];
  temperature?: number;
  top_p?: number;
  max_tokens?: number;
  reasoning_effort?: string;
  seed?: number;
  stop?: string[];
  response_format?: { type: 'json_object' };
}

/** Facts about an answer, known after it arrived; times in milliseconds. */
export interface AnswerFacts {
  node?: string;
  provider?: string;
  servedModel?: string;
  /** True if the node sealed the answer. */
  sealed?: true;
  /** True if the answer's node was lost and another node continued the answer. */
  continued?: true;
  firstTokenMs?: number;
  totalMs?: number;
  promptTokens?: number;
  /** Tokens of the answer, as the engine counted them. */
  completionTokens?: number;
  /** Computed from the engine's count if there is one, otherwise from the number of events. */
  tokensPerSecond?: number;
  /** Why the answer ended; `length`: it was cut off. */
  finish?: string;
}

/** Why no text has arrived yet, if the gateway reports it. */
export interface Waiting {
  reason: 'sent' | 'queued' | 'loading' | 'starting' | 'waking' | 'reading';
  /** Position in the queue; 1 is next. */
  position?: number;
  /** The batch system in which the model's job waits. */
  where?: string;
  /** Progress of loading the model, 0 to 100. */
  percent?: number;
}

export interface ToolCallDelta {
  index: number;
  name: string;
  arguments: string;
}

interface ChatEvents {
  onText: (text: string) => void;
  onReasoning: (text: string) => void;
  onToolCall: (call: ToolCallDelta) => void;
  onFacts: (facts: AnswerFacts) => void;
  onWaiting: (waiting: Waiting) => void;
}

const text = z.optional(z.nullable(z.string()));
const toolCall = z.object({
  index: z.optional(z.nullable(z.number())),
  function: z.optional(z.nullable(z.object({ name: text, arguments: text }))),
});
const chunkSchema = z.object({
  choices: z.optional(
    z.nullable(
      z.array(
        z.object({
          delta: z.optional(
            z.nullable(
              z.object({
                content: text,
                reasoning_content: text,
                reasoning: text,
                tool_calls: z.optional(z.nullable(z.array(toolCall))),
              }),
            ),
          ),
          finish_reason: text,
        }),
      ),
    ),
  ),
  usage: z.optional(
    z.nullable(z.object({ prompt_tokens: z.optional(z.number()), completion_tokens: z.optional(z.number()) })),
  ),
  error: z.optional(z.unknown()),
});

/**
 * Minimum duration for which a rate is shown. The rate of a shorter answer would depend on how its pieces arrived, and
 * not on how fast they were generated.
 */
const RATE_MIN_S = 0.1;

interface ChatWay {
  /** Id of the conversation. The gateway sends its turns to the same node, which has read the turns before. */
  conversation: string;
  /** Provider ids, separated by commas; empty: the key's setting. */
  trusted: string;
  /** True if the request is sealed to the node that answers it. */
  sealed: boolean;
}

/**
 * Streams one answer.
 * @throws Problem if the gateway or the engine refuses, even after a part of the answer; AbortError if it was aborted
 */
export async function streamChat(
  request: ChatRequest,
  { conversation, trusted, sealed }: ChatWay,
  events: ChatEvents,
  signal: AbortSignal,
): Promise<void> {
  const answer = new Answer(events);
  events.onWaiting({ reason: 'sent' });
  const sending = sealed ? (await import('./sealed-requests.ts')).sendSealed : send;
  const response = await sending('/v1/chat/completions', {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'x-otela-session': conversation,
      'x-otela-resume': '1',
      ...(trusted === '' ? {} : { 'x-otela-trusted-providers': trusted }),
    },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  answer.begin(response.headers);
  const reader = new SseReader({
    onData: (data) => answer.take(data),
    onComment: (comment) => answer.hear(comment),
  });
  const decoder = new TextDecoder();
  try {
    for await (const chunk of chunksOf(response.body)) reader.push(decoder.decode(chunk, { stream: true }));
  } catch (cause) {
    // The error that a browser throws for a broken connection has no useful message.
    if (cause instanceof TypeError || sealed) throw new Problem(0, 'offline', t.chat.brokeOff, { cause });
    throw cause;
  }
  answer.end();
}

/** Yields the chunks of a body, because not every browser can iterate a stream. */
async function* chunksOf(body: ReadableStream<Uint8Array> | null): AsyncGenerator<Uint8Array> {
  const reader = body?.getReader();
  for (;;) {
    const next = await reader?.read();
    if (next === undefined || next.done) return;
    yield next.value;
  }
}

class Answer {
  readonly #events: ChatEvents;
  readonly #startedAt = performance.now();
  #facts: AnswerFacts = {};
  #firstAt: number | undefined;
  #pieces = 0;
  #isOver = false;

  constructor(events: ChatEvents) {
    this.#events = events;
  }

  begin(headers: Headers): void {
    this.#know({
      ...named('node', headers.get('x-otela-node')),
      ...named('provider', headers.get('x-otela-provider')),
      ...named('servedModel', headers.get('x-otela-served-model')),
      ...(headers.has('x-otela-sealed') && { sealed: true as const }),
    });
    this.#events.onWaiting({ reason: headers.has('x-otela-node') ? 'reading' : 'queued' });
  }

  /**
   * `otela queued 3rd` says why no text has arrived yet. `otela node=… provider=…` names the node that answers, and
   * `otela continued node=…` the node that continues the answer. `ping` only keeps the connection open.
   */
  hear(comment: string): void {
    const wait = readWaitComment(comment);
    if (wait !== undefined) return this.#events.onWaiting(wait);
    const [first, ...words] = comment.split(/\s+/);
    if (first !== 'otela') return;
    const told = new Map(words.map((word) => [word.split('=', 1)[0] ?? '', word.slice(word.indexOf('=') + 1)]));
    if (!told.has('node')) return;
    this.#know({
      ...named('node', told.get('node')),
      ...named('provider', told.get('provider')),
      ...named('servedModel', told.get('served-model')),
      ...(words[0] === 'continued' && { continued: true as const }),
    });
    this.#events.onWaiting({ reason: 'reading' });
  }

  take(data: string): void {
    if (data === '[DONE]') {
      this.#isOver = true;
      return;
    }
    const { choices, usage, error } = chunkSchema.parse(JSON.parse(data));
    if (error !== undefined && error !== null) throw parseProblem(502, { error });
    this.#count(usage);
    const [choice] = choices ?? [];
    if (choice?.finish_reason) this.#know({ finish: choice.finish_reason });
    const { delta } = choice ?? {};
    const thought = delta?.reasoning_content ?? delta?.reasoning;
    const calls = delta?.tool_calls ?? [];
    if (!delta?.content && !thought && calls.length === 0) return;
    this.#pieces++;
    if (this.#firstAt === undefined) {
      this.#firstAt = performance.now();
      this.#know({ firstTokenMs: this.#firstAt - this.#startedAt });
    }
    if (thought) this.#events.onReasoning(thought);
    if (delta?.content) this.#events.onText(delta.content);
    for (const [n, { index, function: called }] of calls.entries())
      this.#events.onToolCall({ index: index ?? n, name: called?.name ?? '', arguments: called?.arguments ?? '' });
  }

  /**
   * Call when the stream has ended.
   * @throws Problem if the answer is not complete
   */
  end(): void {
    if (!this.#isOver) throw new Problem(502, 'upstream_error', t.chat.brokeOff);
    const now = performance.now();
    const seconds = this.#firstAt === undefined ? 0 : (now - this.#firstAt) / 1000;
    const tokens = this.#facts.completionTokens ?? this.#pieces;
    this.#know({ totalMs: now - this.#startedAt, ...(seconds >= RATE_MIN_S && { tokensPerSecond: tokens / seconds }) });
  }

  #count(usage: z.infer<typeof chunkSchema>['usage']): void {
    if (!usage) return;
    const { prompt_tokens: promptTokens, completion_tokens: completionTokens } = usage;
    this.#know({
      ...(promptTokens !== undefined && { promptTokens }),
      ...(completionTokens !== undefined && { completionTokens }),
    });
  }

  #know(more: AnswerFacts): void {
    this.#facts = { ...this.#facts, ...more };
    this.#events.onFacts(this.#facts);
  }
}

function named<Name extends string>(name: Name, value: string | null | undefined): { [N in Name]?: string } {
  return value ? ({ [name]: value } as { [N in Name]?: string }) : {};
}
