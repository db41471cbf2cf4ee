/**
 * Merkle trees as in RFC 9162 §2.1 (Certificate Transparency), with SHA-256. A leaf is hashed with the prefix 0, and a
 * node with the prefix 1. Without these prefixes, a node could be presented as a leaf.
 */
import type { Crypto } from '../lattice/crypto-interface.ts';

type Hasher = Pick<Crypto, 'sha256'>;

const LEAF = 0;
const NODE = 1;
export const HASH_BYTES = 32;

/** Maximum number of hashes in a proof: enough for 2^40 leaves, and fewer than any number that JSON cannot hold. */
export const PROOF_MAX = 40;

export function leafHash(leaf: Uint8Array, hasher: Hasher): Uint8Array {
  const bytes = new Uint8Array(1 + leaf.length);
  bytes[0] = LEAF;
  bytes.set(leaf, 1);
  return hasher.sha256(bytes);
}

function nodeHash(left: Uint8Array, right: Uint8Array, hasher: Hasher): Uint8Array {
  const bytes = new Uint8Array(1 + 2 * HASH_BYTES);
  bytes[0] = NODE;
  bytes.set(left, 1);
  bytes.set(right, 1 + HASH_BYTES);
  return hasher.sha256(bytes);
}

/**
 * Computes the root of leaves that arrive one after another. Keeps one hash for each bit of the number of leaves, so a
 * statement of any length needs little memory.
 */
export class MerkleRoot {
  readonly #hasher: Hasher;
  /** Roots of complete subtrees, the largest first. Their sizes are the powers of two that add up to `size`. */
  readonly #subtrees: { hash: Uint8Array; size: number }[] = [];
  #size = 0;

  constructor(hasher: Hasher) {
    this.#hasher = hasher;
  }

  get size(): number {
    return this.#size;
  }

  /** Adds the next leaf. */
  add(leaf: Uint8Array): void {
    let right = { hash: leafHash(leaf, this.#hasher), size: 1 };
    for (let left = this.#subtrees.at(-1); left?.size === right.size; left = this.#subtrees.at(-1)) {
      right = { hash: nodeHash(left.hash, right.hash, this.#hasher), size: 2 * right.size };
      this.#subtrees.pop();
    }
    this.#subtrees.push(right);
    this.#size++;
  }

  /** The root of all leaves so far. Without a leaf, the hash of nothing. */
  get root(): Uint8Array {
    const [last, ...larger] = this.#subtrees.toReversed();
    if (last === undefined) return this.#hasher.sha256(new Uint8Array());
    return larger.reduce((right, { hash: left }) => nodeHash(left, right, this.#hasher), last.hash);
  }
}

/**
 * Returns the inclusion proof of the leaf at `index`, lowest hash first. `hashes`: the hashes of all leaves.
 * @throws RangeError if there is no such leaf
 */
export function inclusionProof(hashes: readonly Uint8Array[], index: number, hasher: Hasher): Uint8Array[] {
  if (!Number.isInteger(index) || index < 0 || index >= hashes.length)
    throw new RangeError(`there is no leaf ${index} of ${hashes.length}`);
  const proof: Uint8Array[] = [];
  let level = [...hashes];
  for (let at = index; level.length > 1; at >>>= 1) {
    const sibling = level[at ^ 1];
    // The last node of a level with an odd number of nodes has no sibling: it is a node of the next level as it is.
    if (sibling !== undefined) proof.push(sibling);
    level = pairs(level, hasher);
  }
  return proof;
}

function pairs(level: readonly Uint8Array[], hasher: Hasher): Uint8Array[] {
  const next: Uint8Array[] = [];
  for (let at = 0; at < level.length; at += 2) {
    const [left, right] = [level[at], level[at + 1]];
    if (left !== undefined) next.push(right === undefined ? left : nodeHash(left, right, hasher));
  }
  return next;
}

interface InclusionProof {
  leaf: Uint8Array;
  index: number;
  /** Number of leaves in the tree. */
  size: number;
  proof: readonly Uint8Array[];
}

/** The root that an inclusion proof leads to (RFC 9162 §2.1.3.2). Undefined if the proof has a wrong length. */
export function provenRoot({ leaf, index, size, proof }: InclusionProof, hasher: Hasher): Uint8Array | undefined {
  if (!Number.isSafeInteger(index) || !Number.isSafeInteger(size) || index < 0 || index >= size) return undefined;
  if (proof.length > PROOF_MAX || proof.some((hash) => hash.length !== HASH_BYTES)) return undefined;
  let hash = leafHash(leaf, hasher);
  let at = index;
  let last = size - 1;
  for (const sibling of proof) {
    if (last === 0) return undefined; // the proof is too long
    if (at % 2 === 1 || at === last) {
      hash = nodeHash(sibling, hash, hasher);
      while (at % 2 === 0 && at !== 0) {
        at /= 2;
        last = Math.floor(last / 2);
      }
    } else hash = nodeHash(hash, sibling, hasher);
    at = Math.floor(at / 2);
    last = Math.floor(last / 2);
  }
  return last === 0 ? hash : undefined;
}
