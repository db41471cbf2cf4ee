/** OpenAI's /v1/responses and Anthropic's /v1/messages: named events, with usage in their own members. */
import { type Answer, type Ask, json, missing, type SseEvent } from './answer.ts';
import { countTokens, text, token } from './words.ts';

type Status = 'queued' | 'in_progress' | 'completed' | 'cancelled';

export function responseBody(ask: Ask, status: Status, output: string | undefined) {
  const input = countTokens(ask.body.input);
  const cut = status === 'completed' && ask.finish === 'length';
  const item = {
    type: 'message',
    id: `msg_${ask.id}`,
    status,
    role: 'assistant',
    content: [{ type: 'output_text', text: output ?? '', annotations: [] }],
  };
  return {
    id: ask.id,
    object: 'response',
    created_at: ask.created,
    // vLLM reports a cut-off response only here: the last event of its stream is `response.completed` in any case.
    status: cut ? 'incomplete' : status,
    error: null,
    incomplete_details: cut ? { reason: 'max_output_tokens' } : null,
    instructions: null,
    metadata: {},
    model: ask.model,
    output: output === undefined ? [] : [item],
    parallel_tool_calls: true,
    temperature: 1,
    tool_choice: 'auto',
    tools: [],
    top_p: 1,
    usage:
      status === 'completed'
        ? {
            input_tokens: input,
            input_tokens_details: { cached_tokens: 0 },
            output_tokens: ask.tokens,
            output_tokens_details: { reasoning_tokens: 0 },
            total_tokens: input + ask.tokens,
          }
        : null,
  };
}

export function responses(ask: Ask): Answer {
  if (ask.body.input === undefined) return missing('input');
  if (ask.body.stream === true) return { kind: 'stream', events: responseEvents(ask) };
  return json(responseBody(ask, 'completed', text(ask.tokens)), ask.tokens);
}

export function* responseEvents(ask: Ask): Iterable<SseEvent> {
  let sequence_number = 0;
  const event = (type: string, rest: object, isToken = false): SseEvent => ({
    event: type,
    data: JSON.stringify({ type, sequence_number: sequence_number++, ...rest }),
    token: isToken,
  });
  const item = { id: `msg_${ask.id}`, type: 'message', status: 'in_progress', role: 'assistant', content: [] };
  const place = { item_id: item.id, output_index: 0, content_index: 0 };
  const part = (whole: string) => ({ type: 'output_text', text: whole, annotations: [] });
  yield event('response.created', { response: responseBody(ask, 'in_progress', undefined) });
  yield event('response.in_progress', { response: responseBody(ask, 'in_progress', undefined) });
  yield event('response.output_item.added', { output_index: 0, item });
  yield event('response.content_part.added', { ...place, part: part('') });
  for (let n = 0; n < ask.tokens; n++) {
    yield event('response.output_text.delta', { ...place, delta: token(n), logprobs: [] }, true);
  }
  const whole = text(ask.tokens);
  yield event('response.output_text.done', { ...place, text: whole, logprobs: [] });
  yield event('response.content_part.done', { ...place, part: part(whole) });
  const done = { ...item, status: 'completed', content: [part(whole)] };
  yield event('response.output_item.done', { output_index: 0, item: done });
  yield event('response.completed', { response: responseBody(ask, 'completed', whole) });
}

export function countMessageTokens({ body }: Ask): Answer {
  const input_tokens = countTokens(body.messages);
  return json({ input_tokens, context_management: { original_input_tokens: input_tokens } });
}

export function messages(ask: Ask): Answer {
  const { body } = ask;
  if (!Array.isArray(body.messages)) return missing('messages');
  const stop_reason = ask.finish === 'length' ? 'max_tokens' : 'end_turn';
  const head = { id: ask.id, type: 'message', role: 'assistant', model: ask.model, stop_sequence: null };
  const input_tokens = countTokens(body.messages);
  if (body.stream === true) return { kind: 'stream', events: messageEvents(ask, head, stop_reason, input_tokens) };
  const content = [{ type: 'text', text: text(ask.tokens) }];
  return json({ ...head, content, stop_reason, usage: { input_tokens, output_tokens: ask.tokens } }, ask.tokens);
}

function* messageEvents(ask: Ask, head: object, stop_reason: string, input_tokens: number): Iterable<SseEvent> {
  const event = (type: string, rest: object, isToken = false): SseEvent => ({
    event: type,
    data: JSON.stringify({ type, ...rest }),
    token: isToken,
  });
  const message = { ...head, content: [], stop_reason: null, usage: { input_tokens, output_tokens: 0 } };
  yield event('message_start', { message });
  yield event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } });
  for (let n = 0; n < ask.tokens; n++) {
    yield event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: token(n) } }, true);
  }
  yield event('content_block_stop', { index: 0 });
  yield event('message_delta', {
    delta: { stop_reason, stop_sequence: null },
    usage: { input_tokens, output_tokens: ask.tokens },
  });
  yield event('message_stop', {});
}
