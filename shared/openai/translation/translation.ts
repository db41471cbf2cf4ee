/**
 * Answers /v1/messages and /v1/responses from an engine that has only /v1/chat/completions: translates the request once
 * and the answer as it arrives. Members of a request that the translation does not know are passed on as they were
 * written; parts of a request without a counterpart are refused.
 */
import type { AnswerWriter } from './chat-answer.ts';
import { MessagesWriter } from './messages-answer.ts';
import { messagesToChat } from './messages-request.ts';
import { RawValue } from './raw-value.ts';
import { ResponsesWriter } from './responses-answer.ts';
import { responsesToChat } from './responses-request.ts';

/** APIs that can be translated, as providers name them. */
export const TRANSLATED_APIS = ['messages', 'responses'] as const;
export type TranslatedApi = (typeof TRANSLATED_APIS)[number];

/** The header of a translated answer; its value is the API that answered. */
export const TRANSLATED_HEADER = ['x-otela-translated', 'chat.completions'] as const;

const BY_PATH: ReadonlyMap<string, TranslatedApi> = new Map([
  ['/v1/messages', 'messages'],
  ['/v1/responses', 'responses'],
]);

export const translatedApi = (path: string): TranslatedApi | undefined => BY_PATH.get(path);

export interface TranslatedRequest {
  /** The chat request. */
  body: string;
  /** The same without options that the translation added, for an engine that refuses them. */
  without: string;
  writer: AnswerWriter;
}

/**
 * @param given `id`: unique, of letters, digits and hyphens. `createdAt`: seconds since 1970.
 * @throws ApiError 400
 */
export function translateRequest(
  api: TranslatedApi,
  body: Uint8Array,
  { id, createdAt }: { id: string; createdAt: number },
): TranslatedRequest {
  const value = RawValue.parse(body);
  const model = value.members().need('model').text();
  if (api === 'messages') return { ...messagesToChat(value), writer: new MessagesWriter(id, model) };
  const { echoed, ...bodies } = responsesToChat(value);
  return { ...bodies, writer: new ResponsesWriter({ id, model, createdAt, echoed }) };
}
