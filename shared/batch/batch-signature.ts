import { fromBase64url, toBase64url } from '../lattice/base64url.ts';
import { type Crypto, SIGNATURE_BYTES } from '../lattice/crypto-interface.ts';

/** Header of a batch request with time, nonce and signature, separated by dots. */
export const BATCH_SIGNATURE_HEADER = 'x-otela-signature';
/**
 * Header with the gateway's clock in milliseconds since 1970. It is sent if a request was refused only because of its
 * signature's time.
 */
export const CLOCK_HEADER = 'x-otela-clock';
/**
 * Maximum difference between the signature's time and the gateway's clock. It allows for a slow proxy and for
 * inaccurate clocks. Nonces are remembered for as long.
 */
export const BATCH_SKEW_MS = 60_000;
/** 12 random bytes in base64url. */
const BATCH_NONCE = /^[\w-]{16}$/;

export interface BatchStamp {
  /** Milliseconds since 1970. */
  at: number;
  nonce: string;
}

/**
 * The message that a session signs to request batch work. It names the body's hash, the path, the gateway and the time.
 * `audience` names the gateway, so that another gateway cannot forward the request as its own. Time and nonce prevent
 * an eavesdropper from sending it again.
 */
export function batchRequestMessage(
  { session, audience, path, at, nonce }: BatchStamp & { session: string; audience: string; path: string },
  body: Uint8Array,
  crypto: Pick<Crypto, 'sha256'>,
): Uint8Array {
  const label = new TextEncoder().encode(`otela-batch-2\n${session}\n${audience}\n${path}\n${at}\n${nonce}\n`);
  const digest = crypto.sha256(body);
  const message = new Uint8Array(label.length + digest.length);
  message.set(label);
  message.set(digest, label.length);
  return message;
}

export function writeBatchSignature({ at, nonce }: BatchStamp, signature: Uint8Array): string {
  return `${at}.${nonce}.${toBase64url(signature)}`;
}

/** Undefined if the header is malformed. `former` if an older agent signed neither time nor nonce. */
export function readBatchSignature(text: string): (BatchStamp & { signature: Uint8Array }) | 'former' | undefined {
  const [at = '', nonce = '', rest = ''] = text.split('.');
  if (!text.includes('.'))
    return fromBase64url(text, SIGNATURE_BYTES)?.length === SIGNATURE_BYTES ? 'former' : undefined;
  const signature = fromBase64url(rest, SIGNATURE_BYTES);
  if (!/^\d{1,15}$/.test(at) || !BATCH_NONCE.test(nonce) || signature === undefined) return undefined;
  return { at: Number(at), nonce, signature };
}
