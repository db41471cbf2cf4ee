import type { Candidate } from '../candidates.ts';
import type { Policy } from '../policy.ts';
import { statelessPolicy } from './stateless.ts';
import type { Weights } from './weights.ts';

/** Models whose sequence is remembered. */
const MODELS_MAX = 1_024;

/** Of all numbers the one whose multiples are spread most evenly over [0, 1): any n in a row give each node its share within a few. */
const GOLDEN = (Math.sqrt(5) - 1) / 2;

/**
 * Shares by weight. Not drawn at random, which would queue where chance heaps requests: each model walks the golden ratio's
 * multiples, from a random start, so that isolates do not walk in step.
 */
export function weighted(weightsFor: (model: string) => Weights): Policy {
  const walks = new Map<string, number>();
  const sums = new WeakMap<readonly Candidate[], { weights: Weights; sums: Float64Array }>();
  return statelessPolicy('weighted', (candidates, request, random) => {
    const { model } = request;
    const weights = weightsFor(model);
    let known = weights.classed ? undefined : sums.get(candidates);
    if (known?.weights !== weights) {
      let total = 0;
      const one = (candidate: Candidate) => (total += Math.max(0, weights.of(candidate, request)));
      known = { weights, sums: Float64Array.from(candidates, one) };
      if (!weights.classed) sums.set(candidates, known);
    }
    const at = ((walks.get(model) ?? random()) + GOLDEN) % 1;
    if (walks.size >= MODELS_MAX && !walks.has(model)) walks.clear();
    walks.set(model, at);
    const total = known.sums.at(-1) ?? 0;
    // No candidate has a weight: any of them is better than none.
    if (!(total > 0)) return candidates[Math.floor(at * candidates.length)];
    return candidates[firstAbove(known.sums, at * total)];
  });
}

/** Index of the first sum above `value`; sums do not fall. */
function firstAbove(sums: Float64Array, value: number): number {
  let low = 0;
  let high = sums.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sums[middle] ?? 0) > value) high = middle;
    else low = middle + 1;
  }
  return low;
}
