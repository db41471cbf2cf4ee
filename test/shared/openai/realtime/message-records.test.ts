import fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  closeRecord,
  decodeClose,
  encodeRecord,
  REALTIME_MESSAGE_MAX_BYTES,
  RecordReader,
} from '../../../../shared/openai/realtime/message-records.ts';

const kind = fc.constantFrom('opened', 'text', 'binary', 'close');
const records = fc.array(fc.record({ kind, bytes: fc.uint8Array({ maxLength: 40 }) }), { maxLength: 8 });

it('messages survive any division of the stream into pieces', () => {
  fc.assert(
    fc.property(records, fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1 }), (sent, sizes) => {
      const stream = Buffer.concat(sent.map((one) => encodeRecord(one.kind, one.bytes)));
      const reader = new RecordReader();
      const received = [];
      for (let at = 0, n = 0; at < stream.length; n++) {
        const size = sizes[n % sizes.length] ?? 1;
        received.push(...reader.push(stream.subarray(at, at + size)));
        at += size;
      }
      expect(received.map((one) => ({ ...one, bytes: [...one.bytes] }))).toEqual(
        sent.map((one) => ({ ...one, bytes: [...one.bytes] })),
      );
      expect(reader.isPartial).toBe(false);
    }),
  );
});

it('a length above the maximum and an unknown kind are refused when their head has arrived', () => {
  const head = (first: number, length: number) => {
    const bytes = new Uint8Array(5);
    bytes[0] = first;
    new DataView(bytes.buffer).setUint32(1, length);
    return bytes;
  };
  expect(() => new RecordReader().push(head(1, REALTIME_MESSAGE_MAX_BYTES))).not.toThrow();
  for (const bytes of [head(1, REALTIME_MESSAGE_MAX_BYTES + 1), head(1, 0xffffffff), head(4, 0), head(255, 0)])
    expect(() => new RecordReader().push(bytes)).toThrow(RangeError);
});

it('a close code that no endpoint may send becomes 1000, and a reason has at most 123 bytes', () => {
  for (const code of [0, 999, 1004, 1005, 1006, 1015, 2999, 5000])
    expect(decodeClose(closeRecord(code)).code).toBe(1000);
  for (const code of [1000, 1001, 1008, 1011, 3000, 4999]) expect(decodeClose(closeRecord(code)).code).toBe(code);
  const { reason } = decodeClose(closeRecord(1000, 'ü'.repeat(100)));
  expect([Buffer.byteLength(reason), /^ü+$/.test(reason)]).toEqual([122, true]);
  expect(decodeClose({ kind: 'close', bytes: new Uint8Array(1) })).toEqual({ code: 1000, reason: '' });
});
