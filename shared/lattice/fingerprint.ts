import type { Crypto } from './crypto-interface.ts';
import { BUCKETS, bucketOf, type DigestItem, type DigestPart, itemHash } from './replica-digest.ts';

const MASK = (1n << 64n) - 1n;

/**
 * Sums of the items' hashes mod 2^64. Equal sums mean equal replicas, except with a tiny probability that a forger
 * cannot use. It is a sum and not an xor, because a forger could easily find items with an xor of 0.
 */
export interface Fingerprint {
  live: bigint;
  left: bigint;
  buckets: { live: bigint; left: bigint }[];
}

/** Maintains the sums as items are added and removed. */
export class FingerprintSum {
  readonly #buckets = Array.from({ length: BUCKETS }, () => ({ live: 0n, left: 0n }));
  readonly #crypto: Pick<Crypto, 'sha256'>;

  constructor(crypto: Pick<Crypto, 'sha256'>) {
    this.#crypto = crypto;
  }

  fork(): FingerprintSum {
    const copy = new FingerprintSum(this.#crypto);
    for (const [i, bucket] of copy.#buckets.entries()) Object.assign(bucket, this.#buckets[i]);
    return copy;
  }

  add(item: DigestItem, part: DigestPart): void {
    this.#change(item, part, itemHash(item, this.#crypto));
  }

  remove(item: DigestItem, part: DigestPart): void {
    this.#change(item, part, MASK + 1n - itemHash(item, this.#crypto));
  }

  #change(item: DigestItem, part: DigestPart, by: bigint): void {
    const bucket = this.#buckets[bucketOf(item.id)];
    if (bucket !== undefined) bucket[part] = (bucket[part] + by) & MASK;
  }

  sum(): Fingerprint {
    let live = 0n;
    let left = 0n;
    for (const bucket of this.#buckets) {
      live += bucket.live;
      left += bucket.left;
    }
    return { live: live & MASK, left: left & MASK, buckets: this.#buckets.map((bucket) => ({ ...bucket })) };
  }
}
