import type { Candidate } from '../candidates.ts';
import type { Policy } from '../routing-policy.ts';
import { openRequests } from './open-requests.ts';
import { statelessPolicy } from './stateless.ts';

/**
 * The less loaded of two random candidates (Mitzenmacher 2001). This spreads load nearly as evenly as choosing the
 * least loaded of all, and isolates with the same stale view do not all choose the same node. A slower node answers
 * later, so it has more open requests and gets fewer new ones.
 */
export function betterOfTwo(candidates: readonly Candidate[], random: () => number): Candidate | undefined {
  const first = Math.floor(random() * candidates.length);
  const a = candidates[first];
  if (a === undefined || candidates.length < 2) return a;
  const second = Math.floor(random() * (candidates.length - 1));
  const b = candidates[second < first ? second : second + 1];
  if (b === undefined) return a;
  const difference = openRequests(a) - openRequests(b);
  if (difference !== 0) return difference < 0 ? a : b;
  return (a.load?.kvUse ?? 0) <= (b.load?.kvUse ?? 0) ? a : b;
}

export const leastLoadPolicy: Policy = {
  ...statelessPolicy('least-load', (candidates, _request, random) => betterOfTwo(candidates, random)),
  prefersTiers: true,
};
