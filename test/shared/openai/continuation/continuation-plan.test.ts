import { describe, expect, it } from 'vitest';
import {
  continuationBody,
  detokenizedText,
  isPromptAndText,
  readTokens,
  tokenizeBodies,
} from '../../../../shared/openai/continuation/continuation-bodies.ts';
import { type ContinuationPlan, planContinuation } from '../../../../shared/openai/continuation/continuation-plan.ts';
import { ENDPOINTS } from '../../../../shared/openai/endpoints.ts';
import { bytes, text } from '../support.ts';

const CHAT = { model: 'm', stream: true, messages: [{ role: 'user', content: 'Hi' }] };
const COMPLETION = { model: 'm', stream: true, prompt: 'Once' };

const plan = (path: string, body: unknown) => planContinuation({ path }, bytes(JSON.stringify(body)));
const chat = (more: object) => plan('/v1/chat/completions', { ...CHAT, ...more });
const completion = (more: object) => plan('/v1/completions', { ...COMPLETION, ...more });

function planned(found: ReturnType<typeof plan>): ContinuationPlan {
  if ('why' in found) throw new Error(found.why);
  return found;
}

describe('a stream can be continued', () => {
  it.each([
    {},
    {
      temperature: 0.7,
      top_p: 0.9,
      top_k: 5,
      max_tokens: 10,
      max_completion_tokens: 10,
      user: 'u',
      metadata: { a: 'b' },
    },
    { n: 1, stop: [], tools: [], logprobs: false, top_logprobs: 0, presence_penalty: 0, tool_choice: 'none' },
    { tools: null, seed: null, stop: null, reasoning_effort: null, whatever: null, response_format: { type: 'text' } },
    { stream_options: { include_usage: true }, add_generation_prompt: true, continue_final_message: false },
    { messages: [{ role: 'user', content: [{ type: 'text', text: 'x' }] }] },
  ])('with %j', (more) => {
    expect(chat(more)).not.toHaveProperty('why');
  });

  it('of completions with one text for a prompt', () => {
    expect(completion({ temperature: 0, max_tokens: 5 })).not.toHaveProperty('why');
  });
});

describe('it is never tried', () => {
  it.each(
    Object.entries({
      tools: [{ type: 'function', function: { name: 'f' } }],
      tool_choice: 'auto',
      functions: [{ name: 'f' }],
      logprobs: true,
      top_logprobs: 2,
      n: 2,
      response_format: { type: 'json_object' },
      structured_outputs: { json: {} },
      guided_json: {},
      guided_regex: 'a*',
      regex: 'a*',
      ebnf: 'root ::= "a"',
      json_schema: '{}',
      reasoning_effort: 'low',
      reasoning: {},
      thinking: { type: 'enabled' },
      include_reasoning: true,
      chat_template_kwargs: { enable_thinking: true },
      stop: 'END',
      stop_token_ids: [2],
      bad_words: ['x'],
      seed: 0,
      presence_penalty: 0.1,
      frequency_penalty: -1,
      repetition_penalty: 1.1,
      min_tokens: 4,
      echo: true,
      best_of: 3,
      use_beam_search: true,
      logit_bias: { 5: 1 },
      prompt_logprobs: 1,
      skip_special_tokens: false,
      continue_final_message: true,
      add_generation_prompt: false,
      stream_options: { include_usage: true, continuous_usage_stats: true },
      modalities: ['audio'],
      messages: [{ role: 'assistant', tool_calls: [{ id: 'x' }] }],
      something_that_is_invented_next_year: 1,
      __proto__x: {},
    }),
  )('with %s', (key, value) => {
    expect(chat({ [key]: value })).toHaveProperty('why', expect.stringContaining(key));
  });

  it.each([
    { logprobs: 0 },
    { logprobs: 1 },
    { echo: true },
    { suffix: 'x' },
    { prompt: ['a', 'b'] },
    { prompt: [1, 2] },
    { prompt: undefined },
    { prompt: null },
    { messages: [] },
    { stream: undefined },
    { n: 2 },
    { seed: 1 },
    { stop: ['x'] },
    { max_tokens: 0 },
    { max_tokens: '5' },
  ])('of completions with %j', (more) => {
    expect(completion(more)).toHaveProperty('why');
  });

  it('of any other endpoint', () => {
    const others = ENDPOINTS.filter(({ path }) => !/\/completions$/.test(path));
    expect(others.length).toBeGreaterThan(8);
    for (const { path } of others) expect(plan(path, CHAT)).toHaveProperty('why', expect.stringContaining(path));
  });

  it('of a body that is not a JSON object', () => {
    for (const body of ['', '[]', '"x"', '{"model":', 'null'])
      expect(planContinuation({ path: '/v1/completions' }, bytes(body))).toHaveProperty('why');
  });
});

describe('the next engine is asked', () => {
  const asked = (found: ReturnType<typeof plan>, said: string, produced: number) =>
    JSON.parse(text(continuationBody(planned(found), said, produced)));

  it('for the rest of a completion: the prompt and the text, and fewer tokens', () => {
    expect(asked(completion({ max_tokens: 100, temperature: 0.5 }), ' upon "a\ntime" 🦊', 6)).toEqual({
      ...COMPLETION,
      temperature: 0.5,
      prompt: 'Once upon "a\ntime" 🦊',
      max_tokens: 94,
    });
  });

  it('for no more tokens than engines give a completion that does not say how many', () => {
    expect(asked(completion({}), ' upon', 6)).toMatchObject({ max_tokens: 10 });
    expect(asked(completion({ max_tokens: null }), ' upon', 6)).toMatchObject({ max_tokens: null });
  });

  it('for the rest of a message', () => {
    expect(asked(chat({ max_tokens: 50, max_completion_tokens: 40 }), 'Hello', 8)).toEqual({
      ...CHAT,
      messages: [...CHAT.messages, { role: 'assistant', content: 'Hello' }],
      add_generation_prompt: false,
      continue_final_message: true,
      max_tokens: 42,
      max_completion_tokens: 32,
    });
    expect(asked(chat({}), 'Hello', 8)).not.toHaveProperty('max_tokens');
  });

  it('for one token at least: engines refuse none', () => {
    expect(asked(chat({ max_tokens: 5 }), 'Hello', 9)).toMatchObject({ max_tokens: 1 });
  });

  it('how it reads prompt and text', () => {
    const questions = tokenizeBodies(planned(chat({ temperature: 1 })), 'Hello');
    expect(JSON.parse(text(questions.text))).toEqual({ model: 'm', prompt: 'Hello', add_special_tokens: false });
    expect(JSON.parse(text(questions.rendered?.prompt ?? []))).toEqual({
      model: 'm',
      messages: CHAT.messages,
      add_generation_prompt: true,
    });
    expect(JSON.parse(text(questions.rendered?.partial ?? []))).toEqual({
      model: 'm',
      messages: [...CHAT.messages, { role: 'assistant', content: 'Hello' }],
      add_generation_prompt: false,
      continue_final_message: true,
    });
    expect(tokenizeBodies(planned(completion({})), 'x').rendered).toBeUndefined();
  });
});

describe('what it answers', () => {
  it('is believed only where it is token ids', () => {
    expect(readTokens(bytes('{"tokens":[1,2],"count":2}'))).toEqual([1, 2]);
    for (const odd of [
      '',
      'null',
      '{}',
      '{"tokens":"12"}',
      '{"tokens":[1,"2"]}',
      '{"tokens":[1.5]}',
      '{"tokens":[[1]]}',
    ])
      expect(readTokens(bytes(odd)), odd).toBeUndefined();
    expect(detokenizedText(bytes('{"prompt":"x"}'))).toBe('x');
    expect(detokenizedText(bytes('{"text":"x"}'))).toBe('x');
    for (const odd of ['', '[]', '{}', '{"prompt":7}', '{"text":["x"]}'])
      expect(detokenizedText(bytes(odd)), odd).toBeUndefined();
  });

  it('must be the prompt and then the text, token by token', () => {
    expect(isPromptAndText([1, 2, 3, 4], [1, 2], [3, 4])).toBe(true);
    expect(isPromptAndText([1, 2, 3, 5], [1, 2], [3, 4])).toBe(false);
    expect(isPromptAndText([1, 2, 3, 4, 9], [1, 2], [3, 4])).toBe(false);
    expect(isPromptAndText([9, 1, 2, 3, 4], [1, 2], [3, 4])).toBe(false);
    expect(isPromptAndText([1, 2], [1, 2], [])).toBe(false);
    expect(isPromptAndText([3], [], [3])).toBe(false);
  });
});
