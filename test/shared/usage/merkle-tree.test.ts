/** RFC 9162's trees: the vectors of the certificate-transparency project, and forgeries that must not pass. */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HASH_BYTES, inclusionProof, leafHash, MerkleRoot, provenRoot } from '../../../shared/usage/merkle-tree.ts';

const hasher = { sha256: (bytes: Uint8Array) => new Uint8Array(createHash('sha256').update(bytes).digest()) };
const bytes = (hex: string) => new Uint8Array(Buffer.from(hex, 'hex'));
const hex = (hash: Uint8Array | undefined) => hash && Buffer.from(hash).toString('hex');

/** The leaves of the test vectors in google/certificate-transparency, and the roots of the first n of them. */
const LEAVES = ['', '00', '10', '2021', '3031', '40414243', '5051525354555657', '606162636465666768696a6b6c6d6e6f'];
const ROOTS = [
  'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
  '6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d',
  'fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125',
  'aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77',
  'd37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7',
  '4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4',
  '76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef',
  'ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c',
  '5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328',
];

function rootOf(leaves: readonly Uint8Array[]): Uint8Array {
  const tree = new MerkleRoot(hasher);
  for (const leaf of leaves) tree.add(leaf);
  expect(tree.size).toBe(leaves.length);
  return tree.root;
}

const proofOf = (leaves: readonly Uint8Array[], index: number) =>
  inclusionProof(
    leaves.map((leaf) => leafHash(leaf, hasher)),
    index,
    hasher,
  );

test.each(ROOTS.map((root, size) => ({ size, root })))('the root of $size leaves', ({ size, root }) => {
  expect(hex(rootOf(LEAVES.slice(0, size).map(bytes)))).toBe(root);
});

test('a proof of each leaf of each tree leads to the root, and has no hash too many', () => {
  for (let size = 1; size <= 33; size++) {
    const leaves = Array.from({ length: size }, (_, n) => new Uint8Array([n, size]));
    const root = hex(rootOf(leaves));
    for (const [index, leaf] of leaves.entries()) {
      const proof = proofOf(leaves, index);
      expect(hex(provenRoot({ leaf, index, size, proof }, hasher))).toBe(root);
      expect(proof.length).toBeLessThanOrEqual(Math.ceil(Math.log2(size)));
    }
  }
});

describe('forgeries', () => {
  const leaves = LEAVES.slice(0, 7).map(bytes);
  const root = hex(rootOf(leaves));
  const size = leaves.length;
  const proof = proofOf(leaves, 2);
  const [leaf = new Uint8Array()] = leaves.slice(2);
  const proves = (more: Partial<Parameters<typeof provenRoot>[0]>) =>
    hex(provenRoot({ leaf, index: 2, size, proof, ...more }, hasher)) === root;

  test('another leaf or place or length proves nothing', () => {
    expect(proves({})).toBe(true);
    expect(proves({ leaf: bytes('11') })).toBe(false);
    for (const index of [0, 1, 3, 4, 5, 6, 7, -1, 2.5, Number.NaN]) expect(proves({ index })).toBe(false);
    // A tree of 5, 6 or 8 leaves gives this leaf a path of the same shape. The statement signs the size, too.
    for (const other of [0, 1, 2, 3, 4, 9, 100, 2 ** 52]) expect(proves({ size: other })).toBe(false);
    expect(proves({ proof: proof.slice(1) })).toBe(false);
    expect(proves({ proof: [...proof, ...proof.slice(0, 1)] })).toBe(false);
    expect(proves({ proof: proof.toReversed() })).toBe(false);
    expect(proves({ proof: proof.map((hash) => hash.slice(1)) })).toBe(false);
    expect(proves({ proof: new Array<Uint8Array>(1_000_000).fill(new Uint8Array(HASH_BYTES)) })).toBe(false);
  });

  test('a node of the tree is no leaf: the second preimage that trees without prefixes have', () => {
    const hashes = leaves.map((one) => leafHash(one, hasher));
    const inner = new Uint8Array([...(hashes[0] ?? []), ...(hashes[1] ?? [])]);
    const pairsOnly = [inner, new Uint8Array([...(hashes[2] ?? []), ...(hashes[3] ?? [])])];
    expect(hex(rootOf(pairsOnly))).not.toBe(hex(rootOf(leaves.slice(0, 4))));
    expect(proves({ leaf: inner, index: 0, size: 4, proof: proof.slice(1) })).toBe(false);
    // RFC 6962's trees differ from Bitcoin's: a last leaf that is repeated gives another root.
    expect(hex(rootOf([...leaves, ...leaves.slice(-1)]))).not.toBe(root);
  });

  test('a changed bit anywhere changes the root', () => {
    fc.assert(
      fc.property(fc.nat(proof.length - 1), fc.nat(HASH_BYTES - 1), fc.nat(7), (which, byte, bit) => {
        const changed = proof.map((hash) => hash.slice());
        const hash = changed[which];
        if (hash !== undefined) hash[byte] = (hash[byte] ?? 0) ^ (1 << bit);
        expect(proves({ proof: changed })).toBe(false);
      }),
    );
  });

  test('there is no proof of a leaf that is not there', () => {
    for (const index of [-1, 7, 0.5]) expect(() => proofOf(leaves, index)).toThrow(RangeError);
  });
});
