/**
 * Ed25519 (RFC 8032) and SHA-256 by node:crypto, which workerd has too. WebCrypto is not used: it returns promises, and
 * the merge of registry updates must be synchronous.
 */
import { Buffer } from 'node:buffer';
import { createHash, createPrivateKey, createPublicKey, type KeyObject, randomBytes, sign, verify } from 'node:crypto';
import { type Crypto, KEY_BYTES, SIGNATURE_BYTES, type Signer } from '../../shared/lattice/crypto-interface.ts';

/** The bytes before a raw key in DER (RFC 8410 §4 and §7). */
const PUBLIC_DER = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const PRIVATE_DER = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/**
 * Maximum cached public keys. Parsing is part of each verification's cost, and a session's key is used for each of its
 * records.
 */
const KEYS_MAX = 2048;
const keys = new Map<string, KeyObject>();

export const workerdCrypto: Crypto = {
  sha256: (bytes) => new Uint8Array(createHash('sha256').update(bytes).digest()),
  verify(publicKey, message, signature) {
    if (publicKey.length !== KEY_BYTES || signature.length !== SIGNATURE_BYTES) return false;
    try {
      return verify(null, message, publicKeyObject(publicKey), signature);
    } catch {
      return false;
    }
  },
};

/** Creates the seed of a private key (RFC 8032 §5.1.5). */
export function newSeed(): Uint8Array {
  return new Uint8Array(randomBytes(KEY_BYTES));
}

/** Returns a signer for a seed of 32 secret bytes; by default for a new seed. */
export function workerdSigner(seed: Uint8Array = newSeed()): Signer {
  const privateKey = createPrivateKey({ key: joined(PRIVATE_DER, seed), format: 'der', type: 'pkcs8' });
  const spki = createPublicKey(privateKey).export({ format: 'der', type: 'spki' });
  return {
    publicKey: new Uint8Array(spki.slice(-KEY_BYTES)),
    sign: (message) => new Uint8Array(sign(null, message, privateKey)),
  };
}

function publicKeyObject(raw: Uint8Array): KeyObject {
  const name = String.fromCharCode(...raw);
  let key = keys.get(name);
  if (key === undefined) {
    key = createPublicKey({ key: joined(PUBLIC_DER, raw), format: 'der', type: 'spki' });
    if (keys.size >= KEYS_MAX) keys.clear();
    keys.set(name, key);
  }
  return key;
}

/** Returns a Buffer, because Node's types require one; workerd accepts any bytes. */
function joined(prefix: readonly number[], raw: Uint8Array) {
  return Buffer.from([...prefix, ...raw]);
}
