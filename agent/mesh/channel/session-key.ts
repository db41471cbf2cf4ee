import { createPrivateKey, randomBytes } from 'node:crypto';
import { KEY_BYTES, type Signer } from '../../../shared/lattice/crypto-interface.ts';
import { nodeSigner } from '../../host/node-crypto.ts';

/** The key pair of this agent's session. */
export interface SessionKey extends Signer {
  /** PKCS #8 in PEM, because OpenSSL itself signs the TLS handshakes. */
  readonly privateKey: string;
}

/** PrivateKeyInfo of an Ed25519 key, up to the key bytes (RFC 8410 §7). */
const PKCS8_HEAD = Buffer.from('302e020100300506032b657004220420', 'hex');

/** Creates a key from 32 secret bytes, by default random ones. */
export function createSessionKey(seed: Uint8Array = randomBytes(KEY_BYTES)): SessionKey {
  const key = createPrivateKey({ key: Buffer.concat([PKCS8_HEAD, seed]), format: 'der', type: 'pkcs8' });
  return { ...nodeSigner(seed), privateKey: String(key.export({ type: 'pkcs8', format: 'pem' })) };
}
