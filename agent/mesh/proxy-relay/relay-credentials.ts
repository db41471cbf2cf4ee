/**
 * Authorizes the use of a proxy relay: only agents with the same join token may use it. The relay is an HTTP proxy
 * (CONNECT with Basic credentials, RFC 9110 §9.3.6), so any program that supports a proxy can use it. The credentials
 * prove that the client knows the token. They never contain the token itself.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';

const LABEL = 'otela-relay-1\n';
const NONCE_BYTES = 16;
const NONCE_PATTERN = /^[A-Za-z0-9_-]{22}$/;

/** @param target host:port; the proof covers it, so that intercepted credentials are valid only for that target */
function proof(token: string, nonce: string, target: string): Buffer {
  return createHmac('sha256', token).update(`${LABEL}${nonce}\n${target}`).digest();
}

/** The relay as a proxy URL with new credentials for one target. */
export function relayProxyUrl(relay: string, target: string, token: string): URL {
  const nonce = randomBytes(NONCE_BYTES).toString('base64url');
  const url = new URL(`http://${relay}`);
  url.username = nonce;
  url.password = proof(token, nonce, target).toString('base64url');
  return url;
}

/** Checks a `proxy-authorization` header. */
export function verifyRelayCredentials(header: string | undefined, target: string, tokens: readonly string[]): boolean {
  const basic = /^Basic ([A-Za-z0-9+/=]{1,200})$/.exec(header ?? '')?.[1];
  const [nonce = '', given = ''] = Buffer.from(basic ?? '', 'base64')
    .toString('latin1')
    .split(':');
  if (!NONCE_PATTERN.test(nonce)) return false;
  const proven = Buffer.from(given, 'base64url');
  return tokens.some((token) => {
    const wanted = proof(token, nonce, target);
    return proven.length === wanted.length && timingSafeEqual(proven, wanted);
  });
}
