/** The keys that clients seal to: in memory alone, a new one every day, the one before for as long as a request may still be sealed to it. */
import { generateKeyPairSync, hash } from 'node:crypto';
import { toBase64url } from '../../shared/lattice/base64url.ts';
import { KID_BYTES, LABEL_KID, SEAL_KEY_BYTES, SEALED_LIFE_MAX_S } from '../../shared/seal/suite.ts';
import type { ReceiverKey } from './hpke.ts';

/** HPKE's base mode has no forward secrecy but this: who takes a node's key later reads a day's recorded requests. */
export const ROTATE_MS = 24 * 3_600_000;
const OVERLAP_MS = SEALED_LIFE_MAX_S * 1000;

export interface SealKey extends ReceiverKey {
  /** base64url of 8 bytes. */
  kid: string;
  /** Milliseconds since the epoch: no longer opened from then on. */
  until: number;
}

export class KeyRing {
  readonly #now: () => number;
  #current: SealKey;
  #before: SealKey | undefined;

  /** `now`: milliseconds since the epoch. */
  constructor(now: () => number) {
    this.#now = now;
    this.#current = newKey(now());
  }

  get current(): SealKey {
    return this.#current;
  }

  /** Makes the next key where it is time; true where it did. */
  rotate(): boolean {
    const now = this.#now();
    if (this.#before !== undefined && now >= this.#before.until) this.#before = undefined;
    const { until } = this.#current;
    // A clock that was ahead and is set right would keep the key for as long as it was ahead.
    const aheadOfNow = until - now > ROTATE_MS + OVERLAP_MS;
    if (now < until - OVERLAP_MS && !aheadOfNow) return false;
    this.#before = { ...this.#current, until: Math.min(until, now + OVERLAP_MS) };
    this.#current = newKey(now);
    return true;
  }

  /** The key of that name, while it opens anything. */
  find(kid: string): SealKey | undefined {
    const now = this.#now();
    return [this.#current, this.#before].find((key) => key?.kid === kid && now < key.until);
  }
}

function newKey(now: number): SealKey {
  const { privateKey, publicKey } = generateKeyPairSync('x25519');
  const raw = new Uint8Array(publicKey.export({ format: 'der', type: 'spki' }).subarray(-SEAL_KEY_BYTES));
  return { privateKey, publicKey: raw, kid: kidOf(raw), until: now + ROTATE_MS + OVERLAP_MS };
}

export function kidOf(publicKey: Uint8Array): string {
  const digest = hash('sha256', Buffer.concat([LABEL_KID, publicKey]), 'buffer');
  return toBase64url(digest.subarray(0, KID_BYTES));
}
