/**
 * The non-streaming response of the bench engine. The tunnel's section subtracts its length from the bytes of the
 * tunnel.
 */
export const MODEL = 'bench';

export const UNARY_BODY = {
  id: 'bench',
  object: 'chat.completion',
  created: 0,
  model: MODEL,
  choices: [
    { index: 0, message: { role: 'assistant', content: 'word '.repeat(32) }, logprobs: null, finish_reason: 'stop' },
  ],
  usage: { prompt_tokens: 16, completion_tokens: 32, total_tokens: 48 },
};

export const UNARY_BYTES = JSON.stringify(UNARY_BODY).length;
