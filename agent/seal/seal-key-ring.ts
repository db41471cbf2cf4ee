/**
 * The keys to which clients seal requests. They are only in memory. A new key is created every day, and the previous
 * one is kept while requests may still be sealed to it.
 */
import { generateKeyPairSync, hash } from 'node:crypto';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { KID_BYTES, LABEL_KID, SEAL_KEY_BYTES, SEALED_LIFE_MAX_S } from '../../shared/seal/hpke-suite.ts';
import type { ReceiverKey } from './hpke.ts';

/**
 * How long one key is used. HPKE's base mode has no other forward secrecy: an attacker who gets a key can read all
 * recorded requests that were sealed to it, so at most those of one day.
 */
export const ROTATE_MS = 24 * 3_600_000;
const OVERLAP_MS = SEALED_LIFE_MAX_S * 1000;

interface SealKey extends ReceiverKey {
  /** The key's id: base64url of 8 bytes. */
  kid: string;
  /** End of validity, in milliseconds since 1970. The key then opens nothing any more. */
  until: number;
}

export class KeyRing {
  readonly #now: () => number;
  #current: SealKey;
  #previous: SealKey | undefined;

  /** @param now returns milliseconds since 1970 */
  constructor(now: () => number) {
    this.#now = now;
    this.#current = newKey(now());
  }

  get current(): SealKey {
    return this.#current;
  }

  /** Creates the next key if it is due. True if it did. */
  rotate(): boolean {
    const now = this.#now();
    if (this.#previous !== undefined && now >= this.#previous.until) this.#previous = undefined;
    const { until } = this.#current;
    // True if the clock was ahead when the key was created, and was corrected since. Such a key must be replaced now,
    // because its `until` is too late.
    const aheadOfNow = until - now > ROTATE_MS + OVERLAP_MS;
    if (now < until - OVERLAP_MS && !aheadOfNow) return false;
    this.#previous = { ...this.#current, until: Math.min(until, now + OVERLAP_MS) };
    this.#current = newKey(now);
    return true;
  }

  /** The key with that id, while it is valid. */
  find(kid: string): SealKey | undefined {
    const now = this.#now();
    return [this.#current, this.#previous].find((key) => key?.kid === kid && now < key.until);
  }
}

function newKey(now: number): SealKey {
  const { privateKey, publicKey } = generateKeyPairSync('x25519');
  const raw = new Uint8Array(publicKey.export({ format: 'der', type: 'spki' }).subarray(-SEAL_KEY_BYTES));
  return { privateKey, publicKey: raw, kid: kidOf(raw), until: now + ROTATE_MS + OVERLAP_MS };
}

function kidOf(publicKey: Uint8Array): string {
  const digest = hash('sha256', Buffer.concat([LABEL_KID, publicKey]), 'buffer');
  return toBase64url(digest.subarray(0, KID_BYTES));
}
