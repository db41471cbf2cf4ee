/** A session id certifies its own key: nobody can speak for a session without the private key that its id is made of. */

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';
const SESSION_CHARS = 26;

/** The first 130 bits of `digest` (SHA-256 of the session's raw Ed25519 public key) in lower-case base32 (RFC 4648 §6). */
export function sessionIdFromDigest(digest: Uint8Array): string {
  let id = '';
  let value = 0;
  let bits = 0;
  for (const byte of digest) {
    value = ((value << 8) | byte) & 0xffff;
    bits += 8;
    while (bits >= 5 && id.length < SESSION_CHARS) {
      id += ALPHABET[(value >> (bits - 5)) & 31];
      bits -= 5;
    }
  }
  return id;
}

const encoder = new TextEncoder();

/** What an agent signs to prove its session on one socket: a nonce of the gateway's, so that no signature serves twice. */
export function helloMessage(session: string, generation: number, nonce: Uint8Array): Uint8Array {
  const label = encoder.encode(`otela-hello-1\n${session}\n${generation}\n`);
  const message = new Uint8Array(label.length + nonce.length);
  message.set(label);
  message.set(nonce, label.length);
  return message;
}
