/** Asks the model for one token, through the gateway, as a user would. */
import { openAiErrorMessage } from '../../shared/openai/error-message.ts';
import { UpError } from '../up-error.ts';

/** The first request may compile kernels. */
const FIRST_TOKEN_MS = 10 * 60_000;
/** Maximum size of the stream, which has one token. */
const STREAM_MAX_CHARS = 64 * 1024;
/** The mock engine of this repository names itself in each stream. */
const MOCK = /"system_fingerprint":"[^"]*(?:stand-in|mock)[^"]*"/;

export interface FirstToken {
  ms: number;
  /** True: the mock engine answered, which is not a language model. */
  isMock: boolean;
}

/** @throws UpError */
export async function firstToken(url: string, key: string, model: string): Promise<FirstToken> {
  const from = performance.now();
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model,
      stream: true,
      // The chunk with the usage names the engine.
      stream_options: { include_usage: true },
      max_tokens: 1,
      messages: [{ role: 'user', content: 'Hello' }],
    }),
    signal: AbortSignal.timeout(FIRST_TOKEN_MS),
  });
  if (!response.ok) {
    const text = (await response.text()).slice(0, STREAM_MAX_CHARS);
    throw new UpError(
      `The model does not answer: ${openAiErrorMessage(text) ?? `HTTP ${response.status}`}`,
      'otela logs shows what its engine printed.',
    );
  }
  let [ms, text] = [0, ''];
  for await (const piece of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    if (text === '') ms = performance.now() - from;
    text = (text + piece).slice(-STREAM_MAX_CHARS);
  }
  return { ms, isMock: MOCK.test(text) };
}
