/** chat/completions and completions, in the form of vLLM 0.32. */
import { type Answer, type Ask, FINGERPRINT, json, missing, type SseEvent } from './answer.ts';
import { countTokens, text, token } from './words.ts';

interface Usage {
  prompt_tokens: number;
  total_tokens: number;
  completion_tokens: number;
}

/** Additional members of a finished choice. */
const ENDED = { stop_reason: null };

interface UsageWish {
  /** Whether the stream ends with a chunk with `choices: []` and the counts. */
  final: boolean;
  /** Whether each chunk has the counts (vLLM's `continuous_usage_stats`). */
  each: boolean;
}

function usageOf(prompt: unknown, completion: number): Usage {
  const prompt_tokens = countTokens(prompt);
  return { prompt_tokens, total_tokens: prompt_tokens + completion, completion_tokens: completion };
}

function usageWish(body: Record<string, unknown>): UsageWish {
  const options = body.stream_options;
  if (typeof options !== 'object' || options === null) return { final: false, each: false };
  const final = 'include_usage' in options && options.include_usage === true;
  return { final, each: final && 'continuous_usage_stats' in options && options.continuous_usage_stats === true };
}

interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

/** Returns an argument that matches the type of a JSON schema. */
function sample(schema: unknown): unknown {
  if (typeof schema !== 'object' || schema === null || !('type' in schema)) return 'Bern';
  switch (schema.type) {
    case 'number':
    case 'integer':
      return 7;
    case 'boolean':
      return true;
    case 'array':
      return [];
    case 'object': {
      const properties = 'properties' in schema ? schema.properties : undefined;
      if (typeof properties !== 'object' || properties === null) return {};
      return Object.fromEntries(Object.entries(properties).map(([key, value]) => [key, sample(value)]));
    }
    default:
      return 'Bern';
  }
}

/** The tool call for a request with tools: its first function, with arguments made from the schema. */
function toolCall(body: Record<string, unknown>): ToolCall | undefined {
  if (!Array.isArray(body.tools) || body.tool_choice === 'none') return undefined;
  // After a tool's result it answers with text: otherwise a client's tool loop would never end.
  const last: unknown = Array.isArray(body.messages) ? body.messages.at(-1) : undefined;
  if (typeof last === 'object' && last !== null && 'role' in last && last.role === 'tool') return undefined;
  for (const tool of body.tools as unknown[]) {
    if (typeof tool !== 'object' || tool === null || !('function' in tool)) continue;
    const fn = tool.function;
    if (typeof fn !== 'object' || fn === null || !('name' in fn)) continue;
    const parameters = 'parameters' in fn ? fn.parameters : undefined;
    return { id: 'call_stand_in_1', name: String(fn.name), arguments: JSON.stringify(sample(parameters) ?? {}) };
  }
  return undefined;
}

export function chat(ask: Ask): Answer {
  if (!Array.isArray(ask.body.messages)) return missing('messages');
  if (ask.body.stream === true) return { kind: 'stream', events: chatEvents(ask) };
  const call = toolCall(ask.body);
  const message =
    call === undefined
      ? { role: 'assistant', content: text(ask.tokens, ask.already), refusal: null, reasoning: null }
      : {
          role: 'assistant',
          content: null,
          refusal: null,
          tool_calls: [{ id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments } }],
        };
  return json(
    {
      id: ask.id,
      object: 'chat.completion',
      created: ask.created,
      model: ask.model,
      choices: [
        { index: 0, message, logprobs: null, finish_reason: call ? 'tool_calls' : ask.finish, stop_reason: null },
      ],
      usage: usageOf(ask.body.messages, ask.behaviour?.claimsTokens ?? ask.tokens),
      system_fingerprint: FINGERPRINT,
    },
    ask.tokens,
  );
}

/**
 * The chunk with the counts. In a stream, only this chunk has vLLM's fingerprint; if no counts are requested, the chunk
 * before it has the fingerprint.
 */
const last = (head: object, usage: Usage) =>
  JSON.stringify({ ...head, choices: [], usage, system_fingerprint: FINGERPRINT });

function* chatEvents(ask: Ask): Iterable<SseEvent> {
  const wish = usageWish(ask.body);
  const head = { id: ask.id, object: 'chat.completion.chunk', created: ask.created, model: ask.model };
  const chunk = (delta: unknown, finish_reason: string | null, sent: number) =>
    JSON.stringify({
      ...head,
      choices: [{ index: 0, delta, logprobs: null, finish_reason, ...(finish_reason === null ? {} : ENDED) }],
      // vLLM omits unset fields: there is no `usage: null` in the chunks before the last.
      ...(wish.each ? { usage: usageOf(ask.body.messages, sent) } : {}),
    });
  yield { data: chunk({ role: 'assistant', content: '' }, null, 0) };
  const call = toolCall(ask.body);
  // At a limit, vLLM sets the finish reason in the chunk of the last token; otherwise it sends another chunk without
  // text.
  const cut = call === undefined && ask.finish === 'length' && ask.tokens > 0;
  let sent = 0;
  if (call !== undefined) {
    const fn = { name: call.name, arguments: '' };
    yield { data: chunk({ tool_calls: [{ index: 0, id: call.id, type: 'function', function: fn }] }, null, 0) };
    for (let at = 0; at < call.arguments.length; at += 6) {
      const piece = { index: 0, function: { arguments: call.arguments.slice(at, at + 6) } };
      yield { data: chunk({ tool_calls: [piece] }, null, ++sent), token: true };
    }
  } else {
    while (sent < ask.tokens) {
      const content = token(ask.already + sent++);
      yield { data: chunk({ content }, cut && sent === ask.tokens ? ask.finish : null, sent), token: true };
    }
  }
  if (!cut) yield { data: chunk({ content: '' }, call ? 'tool_calls' : ask.finish, sent) };
  if (wish.final) yield { data: last(head, usageOf(ask.body.messages, sent)) };
  yield { data: '[DONE]' };
}

export function completions(ask: Ask): Answer {
  if (ask.body.prompt === undefined) return missing('prompt');
  const head = { id: ask.id, object: 'text_completion', created: ask.created, model: ask.model };
  if (ask.body.stream !== true) {
    const choice = { index: 0, text: text(ask.tokens, ask.already), logprobs: null, finish_reason: ask.finish };
    return json(
      { ...head, choices: [choice], usage: usageOf(ask.body.prompt, ask.tokens), system_fingerprint: FINGERPRINT },
      ask.tokens,
    );
  }
  return { kind: 'stream', events: completionEvents(ask, head) };
}

function* completionEvents(ask: Ask, head: object): Iterable<SseEvent> {
  const wish = usageWish(ask.body);
  for (let n = 0; n < ask.tokens; n++) {
    const finish_reason = n === ask.tokens - 1 ? ask.finish : null;
    const usage = wish.each ? { usage: usageOf(ask.body.prompt, n + 1) } : {};
    yield {
      data: JSON.stringify({
        ...head,
        choices: [{ index: 0, text: token(ask.already + n), logprobs: null, finish_reason }],
        ...usage,
      }),
      token: true,
    };
  }
  if (wish.final) yield { data: last(head, usageOf(ask.body.prompt, ask.tokens)) };
  yield { data: '[DONE]' };
}
