/** Secrets that sign webhooks, by the Standard Webhooks specification 1.0.0. */
import * as z from 'zod';

/** 24 bytes are the minimum of the specification; in base64, after `whsec_`. */
const SECRET = /^whsec_[A-Za-z0-9+/]{32,88}={0,2}$/;
const secretsSchema = z.record(z.string(), z.string().regex(SECRET));

/**
 * Returns the secrets by URL. Undefined: the text is not such an object.
 * @param text JSON from the environment
 */
export function parseSecrets(text: string | undefined): ReadonlyMap<string, string> | undefined {
  try {
    const read = secretsSchema.safeParse(JSON.parse(text || '{}'));
    return read.success ? new Map(Object.entries(read.data)) : undefined;
  } catch {
    return undefined;
  }
}
