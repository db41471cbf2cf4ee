/** Requests and answers that an agent translates for an engine that has only /v1/chat/completions. */
import { describe, expect, it } from 'vitest';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { ChatStream, EngineFault, translateAnswer } from '../../../shared/openai/translation/chat-answer.ts';
import { MessagesWriter } from '../../../shared/openai/translation/messages-answer.ts';
import { ResponsesWriter } from '../../../shared/openai/translation/responses-answer.ts';
import { type TranslatedApi, translateRequest } from '../../../shared/openai/translation/translation.ts';

const GIVEN = { id: 'u-1', createdAt: 1_700_000_000 };
const bytes = (text: string) => new TextEncoder().encode(text);
const translated = (api: TranslatedApi, body: string) => translateRequest(api, bytes(body), GIVEN).body;
const chatOf = (api: TranslatedApi, body: object): unknown => JSON.parse(translated(api, JSON.stringify(body)));
const message = (content: unknown, role = 'user') => ({ model: 'm', max_tokens: 9, messages: [{ role, content }] });

function refusal(api: TranslatedApi, body: object | string): { status: number; param: string | null } {
  try {
    translated(api, typeof body === 'string' ? body : JSON.stringify(body));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { status: error.status, param: error.param };
  }
  throw new Error('the request was translated');
}

describe('a request of /v1/messages', () => {
  it('becomes a chat with the same turns, tools and results', () => {
    const chat = chatOf('messages', {
      model: 'm',
      max_tokens: 9,
      stream: true,
      system: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
      stop_sequences: ['END'],
      metadata: { user_id: 'secret' },
      thinking: { type: 'enabled', budget_tokens: 1024 },
      tools: [{ name: 'ls', description: 'lists', input_schema: { type: 'object' } }],
      tool_choice: { type: 'any', disable_parallel_tool_use: true },
      messages: [
        { role: 'user', content: 'What is here?' },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'hm', signature: '' },
            { type: 'text', text: 'I look.' },
            { type: 'tool_use', id: 't1', name: 'ls', input: { path: '/' } },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Go on.' },
            {
              type: 'tool_result',
              tool_use_id: 't1',
              is_error: false,
              content: [
                { type: 'text', text: 'a.png' },
                { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } },
              ],
            },
          ],
        },
      ],
    });
    expect(chat).toEqual({
      model: 'm',
      stream: true,
      stream_options: { include_usage: true },
      max_tokens: 9,
      stop: ['END'],
      tools: [{ type: 'function', function: { name: 'ls', description: 'lists', parameters: { type: 'object' } } }],
      tool_choice: 'required',
      parallel_tool_calls: false,
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'What is here?' },
        {
          role: 'assistant',
          content: 'I look.',
          tool_calls: [{ id: 't1', type: 'function', function: { name: 'ls', arguments: '{"path":"/"}' } }],
        },
        { role: 'tool', content: 'a.png', tool_call_id: 't1' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'Go on.' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
          ],
        },
      ],
    });
  });

  it('keeps numbers, schemas and unknown members as they were written', () => {
    const schema = '{"maximum": 12345678901234567890, "x":1.0}';
    const tool = `{"name":"f","input_schema":${schema}}`;
    const use = '{"type":"tool_use","id":"t","name":"f","input":{"n": 1e400}}';
    const body = `{"model":"m","max_tokens":9,"min_p": 0.10,"tools":[${tool}],"messages":[{"role":"assistant","content":[${use}]},{"role":"user","content":"x"}]}`;
    const chat = translated('messages', body);
    expect(chat).toContain(`"parameters":${schema}`);
    expect(chat).toContain('"min_p":0.10');
    expect(chat).toContain(String.raw`"arguments":"{\"n\": 1e400}"`);
  });

  it.each<[string, object, string]>([
    ['a beginning of the answer', message('So', 'assistant'), 'messages[0]'],
    ['a document', message([{ type: 'document', source: {} }]), 'messages[0].content[0]'],
    ['an unknown member of a block', message([{ type: 'text', text: 'x', loud: true }]), 'messages[0].content[0].loud'],
    [
      'a tool that Anthropic runs',
      { ...message('x'), tools: [{ type: 'web_search_20250305', name: 'w' }] },
      'tools[0]',
    ],
    ['servers of tools', { ...message('x'), mcp_servers: [{}] }, 'mcp_servers'],
    ['no length', { model: 'm', messages: [] }, 'max_tokens'],
    ['an unknown role', message('x', 'system'), 'messages[0].role'],
    ['a text that is a number', message(5), 'messages[0].content'],
    [
      'a choice named like a member of every object',
      { ...message('x'), tool_choice: { type: 'constructor' } },
      'tool_choice',
    ],
    [
      'a second limit that would replace the checked one',
      { ...message('x'), max_completion_tokens: 1e6 },
      'max_completion_tokens',
    ],
    ['a second limit in another case', { ...message('x'), Max_Completion_Tokens: 1e6 }, 'Max_Completion_Tokens'],
    ['several choices', { ...message('x'), n: 100 }, 'n'],
  ])('with %s is refused', (_, body, param) => {
    expect(refusal('messages', body)).toEqual({ status: 400, param });
  });

  it('with a key twice or with too many turns is refused', () => {
    const twice = '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a","content":"b"}]}';
    expect(refusal('messages', twice)).toEqual({ status: 400, param: 'messages[0].content' });
    const many = `{"model":"m","max_tokens":1,"messages":[${'{},'.repeat(10_001)}{}]}`;
    expect(refusal('messages', many)).toEqual({ status: 400, param: 'messages' });
    expect(refusal('messages', '{"model":"m"')).toEqual({ status: 400, param: null });
  });
});

describe('a request of /v1/responses', () => {
  it('becomes a chat with the same turns, tools and results', () => {
    const chat = chatOf('responses', {
      model: 'm',
      store: false,
      include: ['reasoning.encrypted_content'],
      instructions: 'Be brief.',
      max_output_tokens: 7,
      reasoning: { effort: 'low', summary: 'auto' },
      text: { format: { type: 'json_schema', name: 'n', schema: { type: 'object' }, strict: true } },
      tools: [{ type: 'function', name: 'ls', parameters: {}, strict: false }],
      tool_choice: { type: 'function', name: 'ls' },
      temperature: 0.5,
      input: [
        { role: 'developer', content: 'No lists.' },
        { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'What is here?' }] },
        { type: 'reasoning', id: 'rs_1', summary: [] },
        {
          type: 'message',
          id: 'm1',
          status: 'completed',
          role: 'assistant',
          content: [{ type: 'output_text', text: 'I look.', annotations: [] }],
        },
        { type: 'function_call', id: 'f1', call_id: 'c1', name: 'ls', arguments: '{}' },
        { type: 'function_call_output', call_id: 'c1', output: 'a' },
      ],
    });
    expect(chat).toEqual({
      model: 'm',
      max_tokens: 7,
      reasoning_effort: 'low',
      temperature: 0.5,
      response_format: { type: 'json_schema', json_schema: { name: 'n', schema: { type: 'object' }, strict: true } },
      tools: [{ type: 'function', function: { name: 'ls', parameters: {}, strict: false } }],
      tool_choice: { type: 'function', function: { name: 'ls' } },
      messages: [
        { role: 'system', content: 'Be brief.' },
        { role: 'system', content: 'No lists.' },
        { role: 'user', content: 'What is here?' },
        {
          role: 'assistant',
          content: 'I look.',
          tool_calls: [{ id: 'c1', type: 'function', function: { name: 'ls', arguments: '{}' } }],
        },
        { role: 'tool', content: 'a', tool_call_id: 'c1' },
      ],
    });
  });

  it.each<[string, object, string]>([
    ['a stored response', { previous_response_id: 'resp_1' }, 'previous_response_id'],
    ['the wish to store it', { store: true }, 'store'],
    ['the wish to run in the background', { background: true }, 'background'],
    ['a tool that OpenAI runs', { tools: [{ type: 'web_search' }] }, 'tools[0]'],
    ['an unknown item', { input: [{ type: 'computer_call' }] }, 'input[0]'],
    ['a file', { input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'f' }] }] }, 'input[0].content[0]'],
    ['a beginning of the answer', { input: [{ role: 'assistant', content: 'So' }] }, 'input'],
    ['a chat’s turns beside its own', { messages: [] }, 'messages'],
    ['a chat’s limit beside its own', { max_tokens: 5 }, 'max_tokens'],
  ])('with %s is refused', (_, more, param) => {
    expect(refusal('responses', { model: 'm', input: 'x', ...more })).toEqual({ status: 400, param });
  });
});

const event = (value: object) => `data: ${JSON.stringify(value)}\n\n`;
const chunk = (delta: object, finish_reason: string | null = null, more: object = {}) =>
  event({ id: 'c', model: 'served', choices: [{ index: 0, delta, finish_reason, ...more }] });
const call = (index: number, fn: object, id?: string) => ({ tool_calls: [{ index, ...(id && { id }), function: fn }] });
const USAGE = { prompt_tokens: 12, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 4 } };
const STREAM = [
  chunk({ role: 'assistant', content: '' }),
  ': a comment\n\n',
  chunk({ reasoning: 'hm' }),
  chunk({ content: 'Hel' }),
  chunk({ content: 'lo' }),
  chunk(call(0, { name: 'ls', arguments: '' }, 't1')),
  chunk(call(0, { arguments: '{"a":' })),
  chunk(call(0, { arguments: '1}' })),
  chunk({}, 'tool_calls'),
  event({ choices: [], usage: USAGE }),
  'data: [DONE]\n\n',
].join('');

const writers = {
  messages: () => new MessagesWriter('u', 'm'),
  responses: () => new ResponsesWriter({ id: 'u', model: 'm', createdAt: 1, echoed: {} }),
};

interface Typed {
  type: string;
  [name: string]: unknown;
}

/** The events of a stream that arrives in chunks of this size. */
function events(api: TranslatedApi, text: string, size = text.length): Typed[] {
  const stream = new ChatStream(writers[api]());
  const all = bytes(text);
  let out = '';
  for (let at = 0; at < all.length; at += size) out += stream.push(all.subarray(at, at + size));
  out += stream.end();
  return out
    .split('\n\n')
    .filter((one) => one !== '')
    .map((one) => JSON.parse(one.slice(one.indexOf('data: ') + 6)) as Typed);
}

describe('a stream', () => {
  it('of /v1/messages has blocks in order and its usage at the end', () => {
    const all = events('messages', STREAM);
    expect(all.map(({ type }) => type)).toEqual([
      'message_start',
      ...['content_block_start', 'content_block_delta', 'content_block_stop'],
      ...['content_block_start', 'content_block_delta', 'content_block_delta', 'content_block_stop'],
      ...['content_block_start', 'content_block_delta', 'content_block_delta', 'content_block_stop'],
      ...['message_delta', 'message_stop'],
    ]);
    expect(all[0]).toMatchObject({ message: { id: 'msg_u', model: 'served', otela_translated: 'chat.completions' } });
    expect(all.at(-2)).toMatchObject({
      delta: { stop_reason: 'tool_use' },
      usage: { input_tokens: 8, cache_read_input_tokens: 4, output_tokens: 5 },
    });
  });

  it('of /v1/responses has items in order and the whole response at the end', () => {
    const all = events('responses', STREAM);
    expect(all.map(({ sequence_number }) => sequence_number)).toEqual(all.map((_, at) => at));
    expect(all.at(-1)).toMatchObject({
      type: 'response.completed',
      response: {
        id: 'resp_u',
        status: 'completed',
        output: [
          { type: 'reasoning', content: [{ type: 'reasoning_text', text: 'hm' }] },
          { type: 'message', content: [{ type: 'output_text', text: 'Hello' }] },
          { type: 'function_call', call_id: 't1', name: 'ls', arguments: '{"a":1}' },
        ],
        usage: { input_tokens: 12, output_tokens: 5, input_tokens_details: { cached_tokens: 4 } },
      },
    });
  });

  it.each(['messages', 'responses'] as const)('of %s is the same however the engine’s bytes are cut', (api) => {
    const whole = events(api, STREAM);
    for (const size of [1, 7, 64]) expect(events(api, STREAM, size)).toEqual(whole);
  });

  it('that the length ends is incomplete, and a stop sequence is named', () => {
    const cut = chunk({ content: 'a' }, 'length');
    expect(events('responses', cut).at(-1)).toMatchObject({
      type: 'response.incomplete',
      response: { status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' }, usage: null },
    });
    expect(events('messages', cut).at(-2)).toMatchObject({ delta: { stop_reason: 'max_tokens' }, usage: {} });
    const stopped = chunk({ content: 'a' }, 'stop', { stop_reason: 'END' });
    expect(events('messages', stopped).at(-2)).toMatchObject({
      delta: { stop_reason: 'stop_sequence', stop_sequence: 'END' },
    });
  });

  it.each(['messages', 'responses'] as const)('of %s passes on an error of the engine and ends', (api) => {
    for (const failure of [event({ error: { message: 'out of memory' } }), 'error: {"code":500}\n\n']) {
      const all = events(api, chunk({ content: 'a' }) + failure + chunk({ content: 'b' }, 'stop'));
      expect(all.at(-1)).toMatchObject({ type: 'error' });
      expect(all.filter(({ type }) => type.endsWith('completed') || type === 'message_stop')).toEqual([]);
    }
  });

  it.each<[string, string]>([
    ['ends early', chunk({ content: 'a' })],
    ['says that it is done without a reason', `${chunk({ content: 'a' })}data: [DONE]\n\n`],
    ['is not JSON', 'data: <html>\n\n'],
    ['is an array', 'data: [1]\n\n'],
    ['is nested too deep', `data: ${'['.repeat(600)}${']'.repeat(600)}\n\n`],
    ['has an event of 2 MiB', `data: "${'x'.repeat(2 ** 21)}"\n\n`],
    ['calls a tool without a name', chunk(call(0, { arguments: '{}' }))],
    ['numbers a tool call by 10^9', chunk(call(1e9, { name: 'f', arguments: '{}' }))],
    [
      'goes back to an earlier tool call',
      chunk(call(0, { name: 'f' }, 'a')) + chunk(call(1, { name: 'g' }, 'b')) + chunk(call(0, { arguments: '{}' })),
    ],
    [
      'calls more tools than an answer may have',
      chunk({ tool_calls: new Array(200).fill({ function: { name: 'f' } }) }),
    ],
    [
      'changes between text and reasoning without end',
      (chunk({ content: 'a' }) + chunk({ reasoning: 'b' })).repeat(600),
    ],
    ['is given up by the engine', chunk({ content: 'a' }, 'abort')],
  ])('that %s is a fault of the engine', (_, text) => {
    for (const api of ['messages', 'responses'] as const) expect(() => events(api, text)).toThrow(EngineFault);
  });
});

describe('a whole answer', () => {
  const answer = (value: unknown) => [bytes(typeof value === 'string' ? value : JSON.stringify(value))];
  const said = {
    role: 'assistant',
    content: 'Hi',
    tool_calls: [{ id: 't', function: { name: 'f', arguments: '{"n":1.0}' } }],
  };
  const whole = { model: 'served', choices: [{ message: said, finish_reason: 'stop' }], usage: USAGE };

  it('keeps the arguments of a call as the model wrote them', () => {
    const text = translateAnswer(writers.messages(), answer(whole));
    expect(text).toContain('"input":{"n":1.0}');
    expect(JSON.parse(text)).toMatchObject({
      type: 'message',
      content: [
        { type: 'text', text: 'Hi' },
        { type: 'tool_use', id: 't', name: 'f' },
      ],
      stop_reason: 'tool_use',
      usage: { input_tokens: 8, output_tokens: 5 },
    });
    expect(JSON.parse(translateAnswer(writers.responses(), answer(whole)))).toMatchObject({
      object: 'response',
      status: 'completed',
      output: [{ type: 'message' }, { type: 'function_call', arguments: '{"n":1.0}' }],
    });
  });

  it('with arguments that are not an object still is JSON', () => {
    const broken = { ...said, tool_calls: [{ id: 't', function: { name: 'f', arguments: '{"n":' } }] };
    const text = translateAnswer(writers.messages(), answer({ choices: [{ message: broken, finish_reason: 'stop' }] }));
    expect(JSON.parse(text)).toMatchObject({ content: [{ type: 'text' }, { type: 'tool_use', input: {} }] });
  });

  it.each<[string, unknown]>([
    ['text', 'Service unavailable'],
    ['without choices', { choices: [] }],
    ['with choices that are numbers', { choices: [1] }],
    ['without a reason of its end', { choices: [{ message: said }] }],
    ['of another kind', { data: [] }],
  ])('%s is a fault of the engine', (_, value) => {
    for (const api of ['messages', 'responses'] as const)
      expect(() => translateAnswer(writers[api](), answer(value))).toThrow(EngineFault);
  });
});
