import type { Candidate } from '../candidates.ts';
import type { Policy } from '../policy.ts';
import { pressure } from './pressure.ts';
import { statelessPolicy } from './stateless.ts';

/**
 * The better of two drawn at random (Mitzenmacher 2001): nearly as even as the best of all, and isolates that share a stale view do
 * not all run to the same node. A slower node answers later, so more is open there, and it gets less.
 */
export function twoChoices(candidates: readonly Candidate[], random: () => number): Candidate | undefined {
  const first = Math.floor(random() * candidates.length);
  const a = candidates[first];
  if (a === undefined || candidates.length < 2) return a;
  const second = Math.floor(random() * (candidates.length - 1));
  const b = candidates[second < first ? second : second + 1];
  if (b === undefined) return a;
  const difference = pressure(a) - pressure(b);
  if (difference !== 0) return difference < 0 ? a : b;
  return (a.load?.kvUse ?? 0) <= (b.load?.kvUse ?? 0) ? a : b;
}

export const leastLoadPolicy: Policy = statelessPolicy('least-load', (candidates, _request, random) =>
  twoChoices(candidates, random),
);
