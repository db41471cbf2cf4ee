/** Streams as engines write them. */
import { bytes } from '../support.ts';

export type Kind = 'chat' | 'completions';

export interface Told {
  kind: Kind;
  id: string;
  model?: string;
  /** What the prompt already contained. */
  after?: readonly string[];
  tokens: readonly string[];
  eol?: string;
  usage?: boolean;
  /** Comments between the events. */
  pings?: boolean;
  fingerprint?: string;
}

const PROMPT_TOKENS = 7;

/** An engine's whole response, one event per item. */
function events({ kind, id, model = 'm', after = [], tokens, usage = true, fingerprint }: Told): string[] {
  const object = kind === 'chat' ? 'chat.completion.chunk' : 'text_completion';
  const head = { id, object, created: id.length, model, ...(fingerprint && { system_fingerprint: fingerprint }) };
  const said = (delta: object, text: string) => (kind === 'chat' ? { delta } : { text });
  const chunk = (delta: object, text: string, finish_reason: string | null) =>
    JSON.stringify({ ...head, choices: [{ index: 0, ...said(delta, text), logprobs: null, finish_reason }] });
  const out = kind === 'chat' ? [chunk({ role: 'assistant', content: '' }, '', null)] : [];
  for (const token of tokens) out.push(chunk({ content: token }, token, null));
  out.push(chunk({}, '', 'stop'));
  const prompt_tokens = PROMPT_TOKENS + after.length;
  const counts = { prompt_tokens, completion_tokens: tokens.length, total_tokens: prompt_tokens + tokens.length };
  if (usage) out.push(JSON.stringify({ ...head, choices: [], usage: counts }));
  return [...out, '[DONE]'];
}

export function stream(told: Told): Uint8Array {
  const { eol = '\n', pings = false } = told;
  const ping = pings ? `: ping${eol}${eol}` : '';
  return bytes(
    events(told)
      .map((data) => `${ping}data: ${data}${eol}${eol}`)
      .join(''),
  );
}
