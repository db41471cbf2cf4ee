import * as z from 'zod';
import { tryParseJson } from '../text/parse-json.ts';

/** `message` may be a number or a list at some engines. */
const envelopeSchema = z.object({ error: z.object({ message: z.coerce.string() }) });

/** The message of an error response. Undefined if it is not OpenAI's error object, for example a proxy's page. */
export function openAiErrorMessage(text: string): string | undefined {
  return envelopeSchema.safeParse(tryParseJson(text)).data?.error.message;
}
