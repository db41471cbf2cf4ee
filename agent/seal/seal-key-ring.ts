/**
 * The keys that clients seal to. They are only in memory. Every day a new one is made, and the previous one is kept
 * while a request may still be sealed to it.
 */
import { generateKeyPairSync, hash } from 'node:crypto';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { KID_BYTES, LABEL_KID, SEAL_KEY_BYTES, SEALED_LIFE_MAX_S } from '../../shared/seal/hpke-suite.ts';
import type { ReceiverKey } from './hpke.ts';

/**
 * The only forward secrecy of HPKE's base mode: an attacker that takes a node's key later can read one day's recorded
 * requests.
 */
export const ROTATE_MS = 24 * 3_600_000;
const OVERLAP_MS = SEALED_LIFE_MAX_S * 1000;

interface SealKey extends ReceiverKey {
  /** base64url of 8 bytes. */
  kid: string;
  /** Milliseconds since the epoch; from then on the key opens nothing. */
  until: number;
}

export class KeyRing {
  readonly #now: () => number;
  #current: SealKey;
  #previous: SealKey | undefined;

  /** `now`: milliseconds since the epoch. */
  constructor(now: () => number) {
    this.#now = now;
    this.#current = newKey(now());
  }

  get current(): SealKey {
    return this.#current;
  }

  /** Makes the next key if it is time; true if it did. */
  rotate(): boolean {
    const now = this.#now();
    if (this.#previous !== undefined && now >= this.#previous.until) this.#previous = undefined;
    const { until } = this.#current;
    // If the clock was ahead and is corrected, the key would otherwise be kept too long by that difference.
    const aheadOfNow = until - now > ROTATE_MS + OVERLAP_MS;
    if (now < until - OVERLAP_MS && !aheadOfNow) return false;
    this.#previous = { ...this.#current, until: Math.min(until, now + OVERLAP_MS) };
    this.#current = newKey(now);
    return true;
  }

  /** The key with that name, while it is valid. */
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
