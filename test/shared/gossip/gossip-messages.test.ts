import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeMessage,
  encodeMessagePart,
  GOSSIP_MESSAGE_MAX_BYTES,
  type MessagePart,
  SUMS_BYTES,
} from '../../../shared/gossip/gossip-messages.ts';
import { LatticeError } from '../../../shared/lattice/lattice-error.ts';
import { One } from './one.ts';

const one = new One('agent', [4]);
const sessions = fc.constantFrom(...one.members.map(({ session }) => session));
const u32 = fc.integer({ min: 0, max: 0xffff_ffff });
const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
const item = fc.record({
  id: fc.stringMatching(/^[0-9a-f]{32}$/),
  state: fc.integer({ min: 1, max: 4 }),
  version: fc.nat(),
  tie: fc.stringMatching(/^[0-9a-f]{16}$/),
  mark: fc.oneof(fc.constant(''), fc.stringMatching(/^[0-9a-f]{16}$/)),
});
const digest = fc.record({
  issuer: fc.constant(one.issuer.id),
  bucket: fc.option(fc.integer({ min: 0, max: 15 }), { nil: undefined }),
  part: fc.option(fc.constantFrom('live' as const, 'left' as const), { nil: undefined }),
  items: fc.array(item, { maxLength: 5 }),
});
const update = fc.constantFrom(...one.members.map((member) => member.full()));
const suspicion = fc
  .record({ target: sessions, incarnation: u32, observer: sessions, signature: bytes(64), proof: bytes(64) })
  .map(({ proof, ...rest }) => ({ ...rest, proof: rest.incarnation > 0 ? proof : undefined }));
const refutation = fc.record({ session: sessions, incarnation: u32.filter((n) => n > 0), signature: bytes(64) });

const part: fc.Arbitrary<MessagePart> = fc.oneof(
  fc.record({ type: fc.constant('ping' as const), seq: u32, root: bytes(8), livenessHash: u32 }),
  fc.record({ type: fc.constant('ack' as const), seq: u32, root: bytes(8), livenessHash: u32, paceMs: u32 }),
  fc.record({ type: fc.constant('probe' as const), seq: u32, target: sessions }),
  fc.record({
    type: fc.constant('probed' as const),
    seq: u32,
    verdict: fc.constantFrom('alive' as const, 'silent' as const, 'unknown' as const),
  }),
  fc.record({ type: fc.constantFrom('news' as const, 'repair' as const), update }),
  fc.record({ type: fc.constantFrom('have' as const, 'digest' as const), digest }),
  fc.record({ type: fc.constant('suspicion' as const), suspicion }),
  fc.record({ type: fc.constant('refutation' as const), refutation }),
  fc.record({
    type: fc.constant('sums' as const),
    issuers: fc.array(fc.record({ issuer: fc.constant(one.issuer.id), sums: bytes(SUMS_BYTES) }), { maxLength: 3 }),
  }),
  fc.record({
    type: fc.constant('wants' as const),
    issuer: fc.constant(one.issuer.id),
    ids: fc.array(fc.stringMatching(/^[0-9a-f]{32}$/), { maxLength: 9 }),
  }),
  fc.record({ type: fc.constant('done' as const), more: fc.boolean() }),
  fc.record({ type: fc.constant('pull' as const), session: sessions }),
  fc.record({ type: fc.constant('apart' as const), apart: fc.boolean() }),
);

function join(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const bytes of parts) {
    all.set(bytes, at);
    at += bytes.length;
  }
  return all;
}

describe('a message', () => {
  it('reads back as it was written, however many parts it has', () => {
    fc.assert(
      fc.property(fc.array(part, { minLength: 1, maxLength: 6 }), (parts) => {
        const read = decodeMessage(join(parts.map(encodeMessagePart)));
        expect(read.map((each) => [...encodeMessagePart(each)])).toEqual(
          parts.map((each) => [...encodeMessagePart(each)]),
        );
        expect(read.map(({ type }) => type)).toEqual(parts.map(({ type }) => type));
      }),
      { numRuns: 300 },
    );
  });

  it('cut anywhere is an error of its own kind or a message of fewer parts, never an exception of another kind', () => {
    fc.assert(
      fc.property(part, fc.nat(), (whole, cut) => {
        const bytes = encodeMessagePart(whole);
        const short = bytes.subarray(0, cut % bytes.length);
        try {
          expect(decodeMessage(short)).toHaveLength(short.length === 0 ? 0 : 1);
        } catch (error) {
          expect(error).toBeInstanceOf(LatticeError);
        }
      }),
      { numRuns: 500 },
    );
  });

  it('of any bytes is read or refused, and holds no more than it was', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 400 }), fc.integer({ min: 0, max: 15 }), (rest, type) => {
        try {
          const parts = decodeMessage(join([Uint8Array.of(type), rest]));
          expect(parts.length).toBeLessThanOrEqual(rest.length + 1);
        } catch (error) {
          expect(error).toBeInstanceOf(LatticeError);
        }
      }),
      { numRuns: 3000 },
    );
  });

  it('that claims a million items, a long text or a later spelling is refused before anything is allocated for it', () => {
    const cases: [string, Uint8Array][] = [
      ['too_large', new Uint8Array(GOSSIP_MESSAGE_MAX_BYTES + 1)],
      ['too_large', Uint8Array.of(8, 65)],
      ['too_large', Uint8Array.of(4, 0xff, 0xff, 0x7f)],
      ['malformed', Uint8Array.of(0, 0x81, 0x00)],
      ['malformed', Uint8Array.of(99)],
      ['truncated', Uint8Array.of(8, 1, 26, 97)],
    ];
    for (const [code, bytes] of cases) {
      expect(() => decodeMessage(bytes), `${code} of ${bytes[0]}`).toThrow(expect.objectContaining({ code }));
    }
  });
});
