/** Ed25519 (RFC 8032) and SHA-256 from Node's crypto, as the synchronous interface that the registry needs. */
import { createPrivateKey, createPublicKey, hash, type KeyObject, randomBytes, sign, verify } from 'node:crypto';
import { type Crypto, KEY_BYTES, SIGNATURE_BYTES, type Signer } from '../../shared/lattice/crypto-interface.ts';

/** DER prefixes of a raw key (RFC 8410 §4 and §7). */
const PUBLIC_DER = Buffer.from('302a300506032b6570032100', 'hex');
const PRIVATE_DER = Buffer.from('302e020100300506032b657004220420', 'hex');

/**
 * Maximum number of cached public keys. Parsing costs a third of a verification, and a session's key is used for each
 * of its records.
 */
const KEYS_MAX = 2048;
const keys = new Map<string, KeyObject>();

export const nodeCrypto: Crypto = {
  sha256: (bytes) => hash('sha256', bytes, 'buffer'),
  verify(publicKey, message, signature) {
    if (publicKey.length !== KEY_BYTES || signature.length !== SIGNATURE_BYTES) return false;
    try {
      return verify(null, message, publicKeyObject(publicKey), signature);
    } catch {
      return false;
    }
  },
};

/** Creates a signer from 32 secret bytes, by default random ones. */
export function nodeSigner(seed: Uint8Array = randomBytes(KEY_BYTES)): Signer {
  const privateKey = createPrivateKey({ key: Buffer.concat([PRIVATE_DER, seed]), format: 'der', type: 'pkcs8' });
  const spki = createPublicKey(privateKey).export({ format: 'der', type: 'spki' });
  return {
    publicKey: new Uint8Array(spki.subarray(-KEY_BYTES)),
    sign: (message) => new Uint8Array(sign(null, message, privateKey)),
  };
}

function publicKeyObject(raw: Uint8Array): KeyObject {
  const name = Buffer.from(raw).toString('latin1');
  let key = keys.get(name);
  if (key === undefined) {
    key = createPublicKey({ key: Buffer.concat([PUBLIC_DER, raw]), format: 'der', type: 'spki' });
    if (keys.size >= KEYS_MAX) keys.clear();
    keys.set(name, key);
  }
  return key;
}
