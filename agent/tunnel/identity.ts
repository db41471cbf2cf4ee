import { createHash, generateKeyPairSync, sign } from 'node:crypto';
import { sessionIdFromDigest } from '../../shared/lattice/session.ts';
import type { Identity } from './types.ts';

/** A new session: a new Ed25519 key pair that lives in this process only. A restart is always a new session. */
export function createIdentity(): Identity {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  // The raw key is the last 32 bytes of its SubjectPublicKeyInfo (RFC 8410 §4).
  const raw = new Uint8Array(publicKey.export({ type: 'spki', format: 'der' }).subarray(-32));
  return {
    session: sessionIdFromDigest(createHash('sha256').update(raw).digest()),
    publicKey: raw,
    sign: (message) => new Uint8Array(sign(null, message, privateKey)),
  };
}
