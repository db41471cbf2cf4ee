/**
 * The requests to the engine that continues a stream. The first requests ask how the engine tokenizes the text so far,
 * and the last one asks it to continue after that text.
 */
import { encodeUtf8 } from '../byte-search.ts';
import type { ContinuationPlan } from './continuation-plan.ts';
import { parseJsonObject } from './parse-json-object.ts';

/** Maximum length of an answer of `/tokenize`. No model has a context that would need a longer one. */
export const TOKENS_ANSWER_MAX_BYTES = 16 * 1024 * 1024;

const PARTIAL = { add_generation_prompt: false, continue_final_message: true } as const;

/**
 * The body for the engine that continues.
 * @param text the part of the response that the client already has; not empty
 * @param produced number of tokens of `text`
 */
export function continuationBody({ kind, body, limit }: ContinuationPlan, text: string, produced: number): Uint8Array {
  const left = limit === undefined ? {} : lessTokens(kind, body, limit, produced);
  if (kind === 'completions') return json({ ...body, ...left, prompt: `${String(body.prompt)}${text}` });
  return json({ ...body, ...left, ...PARTIAL, messages: withPartial(body.messages, text) });
}

/**
 * The limit of tokens, less the produced ones. Sets both names if the client set both, because engines differ in which
 * one they use.
 */
function lessTokens(
  kind: ContinuationPlan['kind'],
  body: ContinuationPlan['body'],
  limit: number,
  produced: number,
): Record<string, number> {
  const less = (tokens: number) => Math.max(1, tokens - produced);
  const left: Record<string, number> = {};
  if (typeof body.max_completion_tokens === 'number') left.max_completion_tokens = less(body.max_completion_tokens);
  if (typeof body.max_tokens === 'number') left.max_tokens = less(body.max_tokens);
  else if (kind === 'completions') left.max_tokens = less(limit);
  return left;
}

function withPartial(messages: unknown, text: string): unknown[] {
  return [...(Array.isArray(messages) ? messages : []), { role: 'assistant', content: text }];
}

/** Bodies for `/tokenize`. */
interface TokenQuestions {
  /** Asks for the tokens of the text only. */
  text: Uint8Array;
  /** If the request is a chat: asks for the tokens of the prompt, and of the prompt with the partial response. */
  rendered?: { prompt: Uint8Array; partial: Uint8Array };
}

export function tokenizeBodies({ kind, body }: ContinuationPlan, text: string): TokenQuestions {
  const { model, messages } = body;
  const questions = { text: json({ model, prompt: text, add_special_tokens: false }) };
  if (kind === 'completions') return questions;
  const prompt = json({ model, messages, add_generation_prompt: true });
  const partial = json({ model, messages: withPartial(messages, text), ...PARTIAL });
  return { ...questions, rendered: { prompt, partial } };
}

export function detokenizeBody({ body }: ContinuationPlan, tokens: readonly number[]): Uint8Array {
  // skip_special_tokens: SGLang drops special tokens by default. vLLM ignores unknown fields.
  return json({ model: body.model, tokens, skip_special_tokens: false });
}

/** Token ids from an answer of `/tokenize`; undefined if it has none. */
export function readTokens(answer: Uint8Array): number[] | undefined {
  const tokens = parseJsonObject(answer)?.tokens;
  if (!Array.isArray(tokens)) return undefined;
  const ids: number[] = [];
  for (const id of tokens) {
    if (!Number.isSafeInteger(id)) return undefined;
    ids.push(Number(id));
  }
  return ids;
}

/** Text from an answer of `/detokenize`: `prompt` at vLLM, `text` at SGLang. */
export function detokenizedText(answer: Uint8Array): string | undefined {
  const { prompt, text } = parseJsonObject(answer) ?? {};
  if (typeof prompt === 'string') return prompt;
  return typeof text === 'string' ? text : undefined;
}

/**
 * True if the tokens of the partial rendering are those of the prompt followed by those of the text. Then the engine
 * continues exactly after the text.
 */
export function isPromptAndText(
  partial: readonly number[],
  prompt: readonly number[],
  text: readonly number[],
): boolean {
  if (prompt.length === 0 || text.length === 0 || partial.length !== prompt.length + text.length) return false;
  return partial.every((id, at) => id === (at < prompt.length ? prompt[at] : text[at - prompt.length]));
}

function json(value: object): Uint8Array {
  return encodeUtf8(JSON.stringify(value));
}
