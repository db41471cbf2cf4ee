import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { InboundStream } from '../../../shared/wire/inbound-stream.ts';
import { OutboundStream } from '../../../shared/wire/outbound-stream.ts';
import {
  STREAM_WINDOW_BYTES,
  STREAM_WINDOW_MAX_BYTES,
  WINDOW_POOL_BYTES,
} from '../../../shared/wire/protocol-constants.ts';
import { WindowPool } from '../../../shared/wire/window-pool.ts';
import { WireError } from '../../../shared/wire/wire-error.ts';

/** Byte k of the body is k mod 251, so that a byte at a wrong offset shows. */
function body(from: number, length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, i) => (from + i) % 251);
}

describe('a body on its way', () => {
  test('arrives whole and in order through any schedule of pushes, sends, reads and lost sockets', () => {
    const step = fc.oneof(
      fc.record({
        kind: fc.constant('push' as const),
        bytes: fc.oneof(fc.integer({ min: 1, max: 60_000 }), fc.integer({ min: 1, max: 500 })),
      }),
      fc.record({ kind: fc.constant('send' as const), bytes: fc.integer({ min: 1, max: 70_000 }) }),
      fc.record({ kind: fc.constant('read' as const), bytes: fc.integer({ min: 1, max: 100_000 }) }),
      fc.record({ kind: fc.constant('lose' as const), bytes: fc.constant(0) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const outgoing = new OutboundStream({ tail: 1000 });
        const incoming = new InboundStream();
        const pool = new WindowPool();
        let pushed = 0;
        let expected = 0;
        const deliver = (piece: { offset: number; bytes: Uint8Array }) => {
          const fresh = incoming.accept(piece.offset, piece.bytes);
          expect(fresh).toEqual(body(expected, fresh.length));
          expected += fresh.length;
        };
        for (const { kind, bytes } of steps) {
          if (kind === 'push' && outgoing.unsent < 200_000) {
            outgoing.push(body(pushed, bytes));
            pushed += bytes;
          } else if (kind === 'send') {
            const piece = outgoing.take(bytes);
            if (piece !== undefined) deliver(piece);
          } else if (kind === 'read') {
            incoming.consume(bytes);
            const credit = incoming.credit(pool);
            if (credit !== undefined) outgoing.credit(credit.consumed, credit.window);
          } else if (kind === 'lose') {
            outgoing.take(10_000); // in transit when the socket was lost
            expect(outgoing.rewind(incoming.received)).toBe(true);
            incoming.resume();
          }
          expect(incoming.buffered).toBeLessThanOrEqual(STREAM_WINDOW_MAX_BYTES + STREAM_WINDOW_BYTES);
        }
        outgoing.finish();
        while (!outgoing.drained) {
          const piece = outgoing.take(65_536);
          if (piece !== undefined) deliver(piece);
          incoming.consume(incoming.buffered);
          const credit = incoming.credit(pool);
          if (credit !== undefined) outgoing.credit(credit.consumed, credit.window);
        }
        incoming.end(outgoing.length);
        expect(expected).toBe(pushed);
        expect(incoming.complete).toBe(true);
      }),
      { numRuns: 300 },
    );
  });

  test('a reader that does not read stops the sender after one window', () => {
    const outgoing = new OutboundStream();
    const incoming = new InboundStream();
    const pool = new WindowPool();
    for (let sent = 0; sent < 200; sent++) {
      if (outgoing.unsent < STREAM_WINDOW_BYTES) outgoing.push(new Uint8Array(64 * 1024));
      const piece = outgoing.take(64 * 1024);
      if (piece !== undefined) incoming.accept(piece.offset, piece.bytes);
      expect(incoming.credit(pool)).toBeUndefined();
    }
    expect(incoming.buffered).toBe(STREAM_WINDOW_BYTES);
    expect(outgoing.kept).toBeLessThanOrEqual(2 * STREAM_WINDOW_BYTES);
  });

  test('the window grows for a reader that keeps up, to its bound and no further', () => {
    const outgoing = new OutboundStream({ tail: 0 });
    const incoming = new InboundStream();
    const pool = new WindowPool();
    let widest = 0;
    for (let i = 0; i < 2000; i++) {
      if (outgoing.unsent === 0) outgoing.push(new Uint8Array(64 * 1024));
      const piece = outgoing.take(64 * 1024);
      if (piece !== undefined) incoming.accept(piece.offset, piece.bytes);
      incoming.consume(incoming.buffered);
      const credit = incoming.credit(pool);
      if (credit === undefined) continue;
      widest = Math.max(widest, credit.window);
      outgoing.credit(credit.consumed, credit.window);
    }
    expect(widest).toBe(STREAM_WINDOW_MAX_BYTES);
    expect(pool.free).toBe(WINDOW_POOL_BYTES + STREAM_WINDOW_BYTES - STREAM_WINDOW_MAX_BYTES);
    incoming.shrink(pool);
    expect(pool.free).toBe(WINDOW_POOL_BYTES);
  });

  test('acknowledged bytes are released, but for the tail that a new object may ask for', () => {
    const outgoing = new OutboundStream({ tail: 1000 });
    for (let i = 0; i < 100; i++) {
      outgoing.push(body(i * 4000, 4000));
      outgoing.take(4000);
      outgoing.credit((i + 1) * 4000, STREAM_WINDOW_BYTES);
    }
    expect(outgoing.kept).toBeLessThanOrEqual(8000);
    expect(outgoing.rewind(395_999)).toBe(false);
    expect(outgoing.rewind(396_500)).toBe(true);
    expect(outgoing.take(10)).toEqual({ offset: 396_500, bytes: body(396_500, 10) });
  });

  test('small pieces that wait together are sent together', () => {
    const outgoing = new OutboundStream();
    for (let i = 0; i < 20; i++) outgoing.push(body(i * 200, 200));
    expect(outgoing.take(65_536)).toEqual({ offset: 0, bytes: body(0, 4000) });
    outgoing.push(body(4000, 200));
    expect(outgoing.take(65_536)).toEqual({ offset: 4000, bytes: body(4000, 200) });
    expect(outgoing.rewind(100)).toBe(true);
    expect(outgoing.take(65_536)).toEqual({ offset: 100, bytes: body(100, 4100) });
  });

  test('lies about offsets are errors: a gap, an end too early, credit for what was never sent, more than was granted', () => {
    const incoming = new InboundStream();
    expect(() => incoming.accept(5, body(5, 1))).toThrow(WireError);
    incoming.accept(0, body(0, 10));
    expect(() => incoming.end(11)).toThrow(WireError);
    expect(() => incoming.accept(10, new Uint8Array(STREAM_WINDOW_BYTES))).toThrow(/credit ends/);
    incoming.end(10);
    expect(() => incoming.accept(10, body(10, 1))).toThrow(WireError);
    const outgoing = new OutboundStream();
    outgoing.push(body(0, 10));
    outgoing.take(5);
    expect(() => outgoing.credit(6, 100)).toThrow(WireError);
  });
});
