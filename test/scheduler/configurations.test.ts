import fc from 'fast-check';
import { expect, it } from 'vitest';
import { cheapest, type Item, quickest } from '../../scheduler/solver/replica-sets.ts';

const MOST = 5;
const item = fc
  .record({
    price: fc.double({ min: 0.01, max: 3, noNaN: true }),
    segments: fc.array(
      fc.record({
        width: fc.double({ min: 0.3, max: 1.5, noNaN: true }),
        slope: fc.double({ min: 0.1, max: 4, noNaN: true }),
      }),
      { minLength: 1, maxLength: 3 },
    ),
  })
  .map(({ price, segments }, option = 0): Item => {
    const sorted = [...segments].sort((a, b) => a.slope - b.slope);
    return { option, price, segments: sorted, rate: sorted.reduce((sum, { width }) => sum + width, 0), most: MOST };
  });

/** Price, and price plus waiting, of every choice of replicas that can serve `rate`. */
function* all(items: readonly Item[], rate: number): Generator<{ price: number; value: number }> {
  for (let code = 0; code < (MOST + 1) ** items.length; code++) {
    const counts = items.map((_, i) => Math.floor(code / (MOST + 1) ** i) % (MOST + 1));
    const price = items.reduce((sum, one, i) => sum + one.price * (counts[i] ?? 0), 0);
    const pieces = items
      .flatMap((one, i) => one.segments.map(({ width, slope }) => ({ width: width * (counts[i] ?? 0), slope })))
      .sort((a, b) => a.slope - b.slope);
    let [left, waiting] = [rate, 0];
    for (const { width, slope } of pieces) {
      const here = Math.min(left, width);
      waiting += here * slope;
      left -= here;
    }
    if (left <= rate * 1e-7) yield { price, value: price + waiting };
  }
}

it('the cheapest and the quickest replicas are those that trying all finds, and their bounds hold', () => {
  fc.assert(
    fc.property(
      fc.array(item, { minLength: 1, maxLength: 3 }),
      fc.double({ min: 0.01, max: 9, noNaN: true }),
      (items, rate) => {
        const tried = [...all(items, rate)];
        const [price, value] = [Math.min(...tried.map((one) => one.price)), Math.min(...tried.map((one) => one.value))];
        const [cheap, quick] = [cheapest(items, rate), quickest(items, rate)];
        expect(cheap === undefined).toBe(tried.length === 0);
        expect(quick === undefined).toBe(tried.length === 0);
        if (cheap === undefined || quick === undefined) return;
        expect(cheap.bound).toBeLessThanOrEqual(price * (1 + 1e-9) + 1e-9);
        expect(quick.bound).toBeLessThanOrEqual(value * (1 + 1e-9) + 1e-9);
        expect(cheap.value).toBeLessThanOrEqual(price * 1.002 + 1e-9);
        expect(quick.value).toBeLessThanOrEqual(value * 1.002 + 1e-9);
      },
    ),
    { numRuns: 300, seed: 4 },
  );
});
