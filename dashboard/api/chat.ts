/** One answer of a model, streamed: OpenAI's chat completions as server-sent events. */
import * as z from 'zod/mini';
import { Problem, send } from './client.ts';
import { SseReader } from './sse.ts';

export type Part = { type: 'text'; text: string } | { type: 'image_url'; image_url: { url: string } };

export interface Message {
  role: 'system' | 'user' | 'assistant';
  content: string | Part[];
}

interface ChatRequest {
  model: string;
  messages: Message[];
  temperature?: number;
  top_p?: number;
  max_tokens?: number;
}

/** What is known of an answer once it is there; times in milliseconds. */
export interface Told {
  node: string;
  provider: string;
  firstTokenMs?: number;
  /** Of the engine's count where it gave one, else of the events. */
  tokensPerSecond?: number;
}

interface ChatEvents {
  onText(text: string): void;
  onReasoning(text: string): void;
  onTold(told: Told): void;
}

const text = z.optional(z.nullable(z.string()));
const chunkSchema = z.object({
  choices: z.optional(
    z.array(z.object({ delta: z.optional(z.object({ content: text, reasoning_content: text, reasoning: text })) })),
  ),
  usage: z.optional(z.nullable(z.object({ completion_tokens: z.number() }))),
  error: z.optional(z.object({ message: z.string() })),
});

/** @throws Problem where the gateway or the engine says no, also in mid-stream; AbortError when stopped. */
export async function chat(
  request: ChatRequest,
  trusted: string,
  events: ChatEvents,
  signal: AbortSignal,
): Promise<void> {
  const startedAt = performance.now();
  const response = await send('/v1/chat/completions', {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(trusted === '' ? {} : { 'x-otela-trusted-providers': trusted }),
    },
    body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  const told: Told = {
    node: response.headers.get('x-otela-node') ?? '',
    provider: response.headers.get('x-otela-provider') ?? '',
  };
  events.onTold(told);
  let firstAt: number | undefined;
  let pieces = 0;
  let counted: number | undefined;
  let over = false;
  const take = (data: string) => {
    if (data === '[DONE]') {
      over = true;
      return;
    }
    const { choices, usage, error } = chunkSchema.parse(JSON.parse(data));
    if (error !== undefined) throw new Problem(502, 'upstream_error', error.message);
    counted = usage?.completion_tokens ?? counted;
    const delta = choices?.[0]?.delta;
    const thought = delta?.reasoning_content ?? delta?.reasoning;
    if (!delta?.content && !thought) return;
    pieces++;
    if (firstAt === undefined) {
      firstAt = performance.now();
      told.firstTokenMs = firstAt - startedAt;
      events.onTold({ ...told });
    }
    if (thought) events.onReasoning(thought);
    if (delta?.content) events.onText(delta.content);
  };
  const reader = new SseReader(take);
  const decoder = new TextDecoder();
  for await (const chunk of chunksOf(response.body)) reader.push(decoder.decode(chunk, { stream: true }));
  if (!over) throw new Problem(502, 'upstream_error', 'The answer broke off before its end.');
  const seconds = firstAt === undefined ? 0 : (performance.now() - firstAt) / 1000;
  if (seconds > 0) events.onTold({ ...told, tokensPerSecond: (counted ?? pieces) / seconds });
}

/** Not every browser iterates a stream. */
async function* chunksOf(body: ReadableStream<Uint8Array> | null): AsyncGenerator<Uint8Array> {
  const reader = body?.getReader();
  for (;;) {
    const next = await reader?.read();
    if (next === undefined || next.done) return;
    yield next.value;
  }
}
