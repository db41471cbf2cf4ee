import type { Crypto } from '../lattice/crypto.ts';

/** Header of the signature, base64url. */
export const BATCH_SIGNATURE_HEADER = 'x-otela-signature';

/**
 * What a session signs to ask for work of batches: a request of this body, at this path, to this gateway. `audience` keeps another gateway from
 * passing the request on as its own.
 */
export function batchRequestMessage(
  { session, audience, path }: { session: string; audience: string; path: string },
  body: Uint8Array,
  crypto: Pick<Crypto, 'sha256'>,
): Uint8Array {
  const label = new TextEncoder().encode(`otela-batch-1\n${session}\n${audience}\n${path}\n`);
  const digest = crypto.sha256(body);
  const message = new Uint8Array(label.length + digest.length);
  message.set(label);
  message.set(digest, label.length);
  return message;
}
