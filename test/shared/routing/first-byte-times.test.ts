import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FirstByteTimes, quantileMs, type RequestShape } from '../../../shared/routing/hang/first-byte-times.ts';

const CHAT: RequestShape = { endpoint: 1, streaming: true, bytes: 500 };

function timesOf(shape: RequestShape, all: readonly number[]) {
  const times = new FirstByteTimes();
  for (const ms of all) times.add(shape, ms);
  return times.counts;
}

describe('quantiles of the time to the first byte', () => {
  it('lie above the true one, at most by a factor of two', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 64, max: 1_000_000 }), { minLength: 5, maxLength: 300 }),
        fc.double({ min: 0.01, max: 1, noNaN: true }),
        (all, q) => {
          const sorted = all.toSorted((a, b) => a - b);
          const exact = sorted[Math.ceil(q * sorted.length - 1e-9) - 1] ?? 0;
          const found = quantileMs([timesOf(CHAT, all)], CHAT, q, 0) ?? 0;
          expect(found).toBeGreaterThanOrEqual(exact);
          expect(found).toBeLessThanOrEqual(2 * exact);
        },
      ),
    );
  });

  it('are those of the slowest node', () => {
    const fast = timesOf(CHAT, Array(50).fill(100));
    const slow = timesOf(CHAT, Array(50).fill(4_000));
    expect(quantileMs([fast, slow], CHAT, 0.5, 0)).toBe(4_096);
  });

  it('say nothing of four requests, nor of another kind of request', () => {
    expect(quantileMs([timesOf(CHAT, [1, 1, 1, 1])], CHAT, 0.5, 0)).toBeUndefined();
    const known = timesOf(CHAT, Array(50).fill(100));
    expect(quantileMs([known], { ...CHAT, streaming: false }, 0.5, 0)).toBeUndefined();
    expect(quantileMs([known], { ...CHAT, endpoint: 2 }, 0.5, 0)).toBeUndefined();
  });

  it('of a larger request than any known are those of the next smaller size, and more for each byte', () => {
    const known = timesOf(CHAT, Array(50).fill(100));
    expect(quantileMs([known], { ...CHAT, bytes: 104_096 }, 0.5, 1)).toBe(128 + 100_000);
  });

  it('of an engine that became slower are the new ones after some hundred requests', () => {
    const times = new FirstByteTimes();
    for (let n = 0; n < 5_000; n++) times.add(CHAT, 100);
    for (let n = 0; n < 1_000; n++) times.add(CHAT, 8_000);
    expect(quantileMs([times.counts], CHAT, 0.5, 0)).toBe(8_192);
  });
});
