/**
 * Mock signatures for the simulator: a hash of key and message, so that a thousand nodes fit into one process. All
 * other tests of gossip use real keys; a real signature's cost is added to the node's virtual time.
 */
import { hash } from 'node:crypto';
import type { Crypto, Signer } from '../../shared/lattice/crypto-interface.ts';

export interface CountingCrypto extends Crypto {
  /** Verifications until now. */
  readonly count: { verified: number };
}

function digest(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(hash('sha256', bytes, 'buffer'));
}

function seal(key: Uint8Array, message: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(key.length + message.length);
  bytes.set(key);
  bytes.set(message, key.length);
  const signature = new Uint8Array(64);
  signature.set(digest(bytes));
  signature.set(key, 32);
  return signature;
}

export function standInCrypto(): CountingCrypto {
  const count = { verified: 0 };
  return {
    count,
    sha256: digest,
    verify(key, message, signature) {
      count.verified++;
      const good = seal(key, message);
      return signature.length === good.length && good.every((byte, i) => byte === signature[i]);
    },
  };
}

export function standInSigner(rng: () => number): Signer {
  const publicKey = new Uint8Array(32).map(() => Math.floor(rng() * 256));
  return { publicKey, sign: (message) => seal(publicKey, message) };
}
