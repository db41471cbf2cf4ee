import { helloMessage, sessionIdFromDigest } from '../../shared/lattice/session.ts';

/** The agent holds the private key that this session's name is made of, and signed our nonce with it. */
export async function provesSession(
  session: string,
  nonce: Uint8Array<ArrayBuffer>,
  hello: { publicKey: Uint8Array; signature: Uint8Array; generation: number },
): Promise<boolean> {
  const publicKey = new Uint8Array(hello.publicKey);
  if (publicKey.length !== 32 || hello.signature.length !== 64) return false;
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', publicKey));
  if (sessionIdFromDigest(digest) !== session) return false;
  try {
    const key = await crypto.subtle.importKey('raw', publicKey, 'Ed25519', false, ['verify']);
    const message = helloMessage(session, hello.generation, nonce);
    return await crypto.subtle.verify('Ed25519', key, new Uint8Array(hello.signature), message);
  } catch {
    return false; // not a point on the curve
  }
}
