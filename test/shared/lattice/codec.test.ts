import fc from 'fast-check';
import { expect, test } from 'vitest';
import { base32, fromBase32 } from '../../../shared/lattice/base32.ts';
import { fromBase64url, toBase64url } from '../../../shared/lattice/base64url.ts';
import { decodeEviction } from '../../../shared/lattice/eviction.ts';
import { decodeCertificate } from '../../../shared/lattice/gateway-certificate.ts';
import { decodeGcWatermark, decodeRevocation } from '../../../shared/lattice/gateway-key-statements.ts';
import { LatticeError } from '../../../shared/lattice/lattice-error.ts';
import { decodePayload, encodePayload } from '../../../shared/lattice/node-payload.ts';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { decodeUpdate, encodeUpdate, type Update } from '../../../shared/lattice/registry-update.ts';
import { decodeDigest, decodeIds, encodeDigest, encodeIds } from '../../../shared/lattice/replica-digest.ts';
import { decodeRecord } from '../../../shared/lattice/signed-record.ts';
import { decodeTicket } from '../../../shared/lattice/ticket.ts';
import { anUpdate, crypto, lab, updates } from './domain.ts';
import { PAYLOAD } from './house.ts';

const DECODERS: readonly ((bytes: Uint8Array) => unknown)[] = [
  decodeCertificate,
  (bytes) => decodeTicket(bytes, crypto),
  (bytes) => decodeRecord(bytes, crypto),
  (bytes) => decodeEviction(bytes, crypto),
  decodeGcWatermark,
  decodeRevocation,
  decodeUpdate,
  decodeDigest,
  decodeIds,
];

const replicaOf = (list: readonly Update[]) => {
  const replica = new RegistryReplica({ crypto, accepts: () => true });
  for (const update of list) replica.merge(update);
  return replica;
};

/** Every kind of message on the wire, made by its encoder. */
const travelling = updates
  .filter((list) => list.length > 0)
  .map((list) => {
    const replica = replicaOf(list);
    const digest = replica.digest({ issuer: lab.issuer });
    const parts = list.flatMap((update) =>
      Object.values(update).filter((part): part is Uint8Array => part instanceof Uint8Array),
    );
    return [...parts, ...list.map(encodeUpdate), encodeDigest(digest), encodeIds(digest.items.map(({ id }) => id))];
  });

/** The same with damage on the way: a few bytes changed, cut off, doubled or inserted. */
const damaged = fc
  .tuple(
    travelling.chain((all) => fc.constantFrom(...all)),
    fc.array(fc.tuple(fc.nat(), fc.nat({ max: 255 })), { maxLength: 4 }),
    fc.constantFrom('keep', 'cut', 'double', 'pad'),
    fc.nat(),
  )
  .map(([bytes, changes, then, at]) => {
    const copy = bytes.slice();
    for (const [where, value] of changes) copy[where % copy.length] = value;
    if (then === 'cut') return copy.subarray(0, at % copy.length);
    if (then === 'double') return new Uint8Array([...copy, ...copy]);
    return then === 'pad' ? new Uint8Array([...copy, at & 0xff]) : copy;
  });

test('Whatever comes, decoders throw LatticeError or nothing, and a replica nothing at all', () => {
  const anything = fc.oneof(fc.uint8Array({ maxLength: 600 }), damaged);
  const replica = replicaOf([]);
  const check = fc.property(anything, (bytes) => {
    for (const decode of DECODERS) {
      try {
        decode(bytes);
      } catch (error) {
        if (!(error instanceof LatticeError)) throw error;
      }
    }
    decodePayload(bytes);
    replica.merge(bytes);
  });
  expect(() => fc.assert(check, { numRuns: 3000 })).not.toThrow();
});

test('What can be decoded has one spelling: encoding it again gives the same bytes', () => {
  const spelled = (bytes: Uint8Array, again: (bytes: Uint8Array) => Uint8Array) => {
    try {
      expect(again(bytes)).toEqual(bytes);
    } catch (error) {
      if (!(error instanceof LatticeError)) throw error;
    }
  };
  const check = fc.property(damaged, (bytes) => {
    spelled(bytes, (given) => encodeUpdate(decodeUpdate(given)));
    spelled(bytes, (given) => encodeDigest(decodeDigest(given)));
    spelled(bytes, (given) => encodeIds(decodeIds(given)));
  });
  expect(() => fc.assert(check, { numRuns: 2000 })).not.toThrow();
});

test('Updates and digests come back as they went', () => {
  const check = fc.property(updates, anUpdate, (list, update) => {
    const plain = (given: Update) =>
      JSON.stringify(given, (_, part) => (part instanceof Uint8Array ? [...part] : part));
    const back = decodeUpdate(encodeUpdate(update));
    const sorted = (given: Update) => [...Object.entries(JSON.parse(plain(given)))].sort();
    expect(sorted(back)).toEqual(sorted(update));
    const digest = replicaOf(list).digest({ issuer: lab.issuer, bucket: 3, part: 'left' });
    expect(decodeDigest(encodeDigest(digest))).toEqual(digest);
  });
  expect(() => fc.assert(check, { numRuns: 500 })).not.toThrow();
});

test('Every beginning of an update is refused, none is taken for a whole one', () => {
  const check = fc.property(anUpdate, (update) => {
    const bytes = encodeUpdate(update);
    for (let length = 0; length < bytes.length; length++)
      expect(() => decodeUpdate(bytes.subarray(0, length))).toThrow(LatticeError);
  });
  expect(() => fc.assert(check, { numRuns: 50 })).not.toThrow();
});

test('base32 and base64url are those of RFC 4648, in one spelling', () => {
  const bytes = fc.uint8Array({ maxLength: 70 });
  const check = fc.property(bytes, (given) => {
    const text = toBase64url(given);
    expect(text).toBe(Buffer.from(given).toString('base64url'));
    expect(fromBase64url(text, 70)).toEqual(given);
    expect(fromBase32(base32(given))?.subarray(0, given.length)).toEqual(given);
  });
  expect(() => fc.assert(check)).not.toThrow();
  expect(base32(new TextEncoder().encode('foobar'))).toBe('mzxw6ytboi');
  for (const wrong of ['A', 'AB', '+A==', 'AA==', 'Zm9v!']) expect(fromBase64url(wrong, 9)).toBeUndefined();
  expect(fromBase64url('AAAAAAAA', 5)).toBeUndefined();
  expect(fromBase32('a1')).toBeUndefined();
});

test('A newer payload is read in part by older code, and an unreadable one counts as no payload', () => {
  const newer = new TextEncoder().encode(JSON.stringify({ ...PAYLOAD, something: { new: [1] } }));
  expect(decodePayload(newer)).toEqual(PAYLOAD);
  expect(decodePayload(encodePayload(PAYLOAD))).toEqual(PAYLOAD);
  for (const bad of ['', '{', 'null', '[]', '{"tier":"x"}', '\u0000', `{"labels":${'['.repeat(2000)}`])
    expect(decodePayload(new TextEncoder().encode(bad))).toBeUndefined();
  expect(decodePayload(Uint8Array.of(0xff, 0xfe))).toBeUndefined();
  expect(() => encodePayload({ ...PAYLOAD, labels: { note: 'x'.repeat(5000) } })).toThrow(LatticeError);
});

test('A node that claims more GPUs than an engine has is not read, by one kind or by many', () => {
  const claims = (...counts: number[]) => {
    const gpus = counts.map((count, n) => ({ class: `K${n}`, name: 'k', vram_mib: 81_920, count }));
    return { ...PAYLOAD, hardware: { ...PAYLOAD.hardware, gpus } };
  };
  const read = (...counts: number[]) => decodePayload(new TextEncoder().encode(JSON.stringify(claims(...counts))));
  expect(read(256)).toEqual(claims(256));
  expect(read(192, 64)).toEqual(claims(192, 64));
  for (const counts of [[257], [192, 65], Array(40).fill(8)]) expect(read(...counts)).toBeUndefined();
});
