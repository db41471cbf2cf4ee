/**
 * Asks the engine's tokenizer whether the engine continues exactly where a text ends, and how many tokens the text has.
 */
import { detokenizeBody, detokenizedText, isPromptAndText, readTokens, tokenizeBodies } from './continuation-bodies.ts';
import type { ContinuationPlan } from './continuation-plan.ts';

/** Ids of the endpoints `/tokenize` and `/detokenize` in shared/openai/endpoints.ts. */
const TOKENIZE = 9;
const DETOKENIZE = 10;

/** Sends a request to one of the two endpoints. Undefined if the engine has no answer. Rejects if the request fails. */
export type TokenizerCall = (endpoint: number, body: Uint8Array) => Promise<Uint8Array | undefined>;

/** The number of tokens of the text, or the reason why the engine would not continue exactly where the text ends. */
export async function countTokens(
  plan: ContinuationPlan,
  text: string,
  ask: TokenizerCall,
): Promise<number | { why: string }> {
  const tokensOf = async (body: Uint8Array) => {
    const answer = await ask(TOKENIZE, body);
    return answer && readTokens(answer);
  };
  const textOf = async (tokens: readonly number[]) => {
    const answer = await ask(DETOKENIZE, detokenizeBody(plan, tokens));
    return answer && detokenizedText(answer);
  };
  const { text: alone, rendered } = tokenizeBodies(plan, text);
  if (rendered === undefined) return (await tokensOf(alone))?.length ?? 0;
  // The requests are sent one after the other, because a node with one free place would refuse the second.
  const count = await tokensOf(alone);
  const prompt = count && (await tokensOf(rendered.prompt));
  const partial = prompt && (await tokensOf(rendered.partial));
  if (count === undefined || prompt === undefined || partial === undefined)
    return { why: 'the next engine does not report how it tokenizes the text so far' };
  if (isPromptAndText(partial, prompt, count)) return count.length;
  // The tokens may differ although the texts are equal: tokens may merge at the boundary of prompt and text, and some
  // tokenizers put a space before every text. So the texts are compared.
  const before = await textOf(prompt);
  if (before !== undefined && `${before}${text}` === (await textOf(partial))) return count.length;
  return { why: "the model's chat template changes the text so far" };
}
