/** A conversation and what happens to it: pure, so that edit, stop and regenerate can be tested without a browser. */
import type { Message, Part, Told } from '../api/chat.ts';
import type { Settings } from './settings.tsx';

export interface Turn {
  role: 'user' | 'assistant';
  text: string;
  /** Of the user: data URLs. */
  images: string[];
  /** Of the model, where it tells. */
  reasoning: string;
  told?: Told;
  error?: string;
}

export const userTurn = (text: string, images: string[] = []): Turn => ({ role: 'user', text, images, reasoning: '' });
export const emptyAnswer = (): Turn => ({ role: 'assistant', text: '', images: [], reasoning: '' });

/** Up to `index`, without it: from there the conversation begins anew. */
export function cutAt(turns: readonly Turn[], index: number): Turn[] {
  return turns.slice(0, index);
}

/** What the engine is sent. Answers that failed before they said anything are left out. */
export function messagesOf(turns: readonly Turn[], system: string): Message[] {
  const said = turns.filter(({ role, text }) => role === 'user' || text !== '');
  const messages = said.map(({ role, text, images }): Message => ({ role, content: contentOf(text, images) }));
  return system.trim() === '' ? messages : [{ role: 'system', content: system }, ...messages];
}

function contentOf(text: string, images: readonly string[]): string | Part[] {
  if (images.length === 0) return text;
  return [{ type: 'text', text }, ...images.map((url): Part => ({ type: 'image_url', image_url: { url } }))];
}

/** The numbers of the form; what is empty or no number is the engine's own. */
export function samplingOf(settings: Settings): { temperature?: number; top_p?: number; max_tokens?: number } {
  const number = (text: string) => (text.trim() === '' || Number.isNaN(Number(text)) ? undefined : Number(text));
  const [temperature, top_p, max_tokens] = [settings.temperature, settings.topP, settings.maxTokens].map(number);
  return {
    ...(temperature === undefined ? {} : { temperature }),
    ...(top_p === undefined ? {} : { top_p }),
    ...(max_tokens === undefined ? {} : { max_tokens }),
  };
}
