import * as z from 'zod';
import { tryParseJson } from '../text/parse-json.ts';

/** Some engines write a number or a list into `message`. */
const envelopeSchema = z.object({ error: z.object({ message: z.coerce.string() }) });

/** The message of an error response. Undefined if it is not OpenAI's error object, for example a proxy's page. */
export function openAiErrorMessage(text: string): string | undefined {
  return envelopeSchema.safeParse(tryParseJson(text)).data?.error.message;
}

/** A gateway's error: OpenAI's envelope with all four fields. */
const gatewayErrorSchema = z.object({
  error: z.object({ message: z.string(), type: z.string(), code: z.string(), param: z.string().nullable() }),
});

/**
 * The code of a gateway's error. Undefined if the answer is not a gateway's error, because a proxy, a firewall or a
 * load balancer may answer with the same status.
 */
export function gatewayErrorCode(text: string): string | undefined {
  return gatewayErrorSchema.safeParse(tryParseJson(text)).data?.error.code;
}
