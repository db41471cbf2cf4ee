/**
 * The mock's tokenizer and chat template: a token is a word with the preceding space, so that the text of an answer has
 * as many tokens as were sent.
 */
import { type Answer, type Ask, json, NO_PATH, refuse } from './answer.ts';
import { token } from './words.ts';

const PIECES = /<\|[^|]*\|>\n?| ?[^\s<]+|[\s<]/gu;

/** First token id of the vocabulary. Smaller ids are UTF-16 units. */
const FIRST_PIECE = 0x10000;
const VOCABULARY_MAX = 50_000;
const numbers = new Map<string, number>();
const pieces: string[] = [];

function numberOf(piece: string): number[] {
  const known = numbers.get(piece);
  if (known !== undefined) return [known];
  if (piece.length === 1 || pieces.length >= VOCABULARY_MAX)
    return Array.from({ length: piece.length }, (_, at) => piece.charCodeAt(at));
  pieces.push(piece);
  numbers.set(piece, FIRST_PIECE + pieces.length - 1);
  return [FIRST_PIECE + pieces.length - 1];
}

/** Renders a conversation as a prompt. */
function render(messages: readonly unknown[], ask: Ask, partial: boolean): string {
  let prompt = '';
  for (const [at, message] of messages.entries()) {
    const { role, content } = Object(message);
    const said = typeof content === 'string' ? content : JSON.stringify(content ?? '');
    if (partial && at === messages.length - 1) return prompt + opened(ask.behaviour?.template, said);
    prompt += `<|${String(role)}|>\n${said}<|end|>\n`;
  }
  return ask.body.add_generation_prompt === false ? prompt : `${prompt}<|assistant|>\n`;
}

function opened(template: string | undefined, said: string): string {
  switch (template) {
    case 'trims':
      return `<|assistant|>\n${said.trim()}`;
    case 'thinks':
      return `<|assistant|>\n<|think|>\n${said}`;
    default:
      return `<|assistant|>\n${said}`;
  }
}

export function tokenize(ask: Ask): Answer {
  const { prompt, messages, continue_final_message: partial } = ask.body;
  switch (ask.behaviour?.tokenizer) {
    case 'none':
      return NO_PATH;
    case 'garbage':
      return json({ tokens: [{ id: 1 }, 'two'], count: -1 });
    case 'empty':
      return json({ tokens: [], count: 0 });
    case 'text':
      return json('tokens? no.');
    default:
  }
  if (partial === true && ask.body.add_generation_prompt === true)
    return refuse(400, 'BadRequestError', 'continue_final_message and add_generation_prompt exclude each other');
  const text = Array.isArray(messages) ? render(messages, ask, partial === true) : String(prompt ?? '');
  const tokens = (text.match(PIECES) ?? []).flatMap(numberOf);
  return json({ count: tokens.length, max_model_len: 32_768, tokens, token_strs: null });
}

export function detokenize(ask: Ask): Answer {
  const tokens: unknown[] = Array.isArray(ask.body.tokens) ? ask.body.tokens : [ask.body.tokens];
  const text = tokens.map(Number).map((id) => pieces[id - FIRST_PIECE] ?? String.fromCharCode(id));
  return json({ prompt: text.join('') });
}

/**
 * Number of tokens of this engine's only answer at the end of the prompt: an engine continues from the end of a text.
 */
export function tokensAlready(body: Record<string, unknown>): number {
  const text = partialAnswer(body);
  const words = text === undefined ? 0 : text.split(' ').length;
  for (let count = words; count > 0; count--) if (endsWithTokens(text ?? '', count)) return count;
  return 0;
}

function partialAnswer({ prompt, messages, continue_final_message }: Record<string, unknown>): string | undefined {
  if (typeof prompt === 'string') return prompt;
  if (continue_final_message !== true || !Array.isArray(messages)) return undefined;
  const { content } = Object(messages.at(-1));
  return typeof content === 'string' ? content : undefined;
}

function endsWithTokens(text: string, count: number): boolean {
  let end = text.length;
  for (let n = count - 1; n >= 0; n--) {
    const word = token(n);
    if (!text.startsWith(word, end - word.length) || end < word.length) return false;
    end -= word.length;
  }
  return true;
}
