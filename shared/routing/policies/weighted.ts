import type { Candidate } from '../candidates.ts';
import type { Policy } from '../routing-policy.ts';
import type { NodeWeightTable } from './node-weights.ts';
import { openRequests } from './open-requests.ts';
import { statelessPolicy } from './stateless.ts';

/** Maximum number of models with a remembered sequence. */
const MODELS_MAX = 1_024;

/**
 * The golden ratio. Its multiples (mod 1) are spread most evenly over [0, 1), so of any n consecutive turns each node
 * gets its share, plus or minus a few turns.
 */
const GOLDEN = (Math.sqrt(5) - 1) / 2;

/**
 * Each node gets a share of the requests by its weight. Random draws would cause queues when chance sends several
 * requests to one node, so each model steps through the multiples of the golden ratio instead. The start is random, so
 * that isolates do not choose the same nodes at the same time. Of two nodes with equal weight the less busy one is
 * taken.
 */
export function weighted(weightsFor: (model: string) => NodeWeightTable): Policy {
  const walks = new Map<string, number>();
  const sums = new WeakMap<readonly Candidate[], { weights: NodeWeightTable; sums: Float64Array }>();
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
    // If no candidate has a weight, any candidate is better than a refusal.
    if (!(total > 0)) return candidates[Math.floor(at * candidates.length)];
    const drawn = firstAbove(known.sums, at * total);
    return candidates[lessBusy(candidates, known.sums, drawn, at)];
  });
}

/** Number of further steps that are searched for another node of the same weight. */
const SEARCH_STEPS = 6;
/** Weights that differ by less than this share of the sum are equal. */
const EQUAL = 1e-9;

/**
 * The next node of the sequence with the same weight, if it is less busy. Shares between unequal nodes are kept, and a
 * queue at one of several equal nodes drains. Only one other node is compared. If the best of all were chosen, isolates
 * with the same stale view would choose the same node.
 */
function lessBusy(candidates: readonly Candidate[], sums: Float64Array, first: number, at: number): number {
  const total = sums.at(-1) ?? 0;
  const weight = (index: number) => (sums[index] ?? 0) - (sums[index - 1] ?? 0);
  for (let step = 1; step <= SEARCH_STEPS; step++) {
    const second = firstAbove(sums, ((at + step * GOLDEN) % 1) * total);
    if (second === first || Math.abs(weight(first) - weight(second)) > EQUAL * total) continue;
    const [a, b] = [candidates[first], candidates[second]];
    return a !== undefined && b !== undefined && openRequests(b) < openRequests(a) ? second : first;
  }
  return first;
}

/** Index of the first sum above `value`; the sums are sorted. */
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
