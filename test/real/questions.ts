/** The prompt. */

export const MESSAGES = [{ role: 'user', content: 'Name three lakes in Switzerland and say why each is known.' }];
/** The most likely token each time, so the same request gets the same response. */
export const GREEDY = { temperature: 0 };
export const LONG = { ...GREEDY, max_tokens: 4_000, ignore_eos: true };

export const chat = (model: string, more: object = {}) => ({
  model,
  messages: MESSAGES,
  ...GREEDY,
  max_tokens: 48,
  ...more,
});

export const text = (model: string, more: object = {}) => ({
  model,
  prompt: 'The three lakes are',
  ...GREEDY,
  max_tokens: 48,
  ...more,
});

const PARAMETERS = {
  type: 'object',
  properties: { deep: { type: 'boolean' } },
  required: ['deep'],
  additionalProperties: false,
};
/** With `--tool-call-parser`, vLLM always makes it a call, whatever tokens its model generates. */
export const TOOL = {
  tools: [{ type: 'function', function: { name: 'lake', parameters: PARAMETERS } }],
  tool_choice: { type: 'function', function: { name: 'lake' } },
};
