import type { Candidate } from './candidates.ts';

/** What a policy may know of a request. Grows with the policies that need more. */
export interface RoutedRequest {
  model: string;
}

/** Chooses among candidates. Synchronous and pure but for `random`, in [0, 1). */
export interface Policy {
  readonly name: string;
  pick(candidates: readonly Candidate[], request: RoutedRequest, random: () => number): Candidate | undefined;
}

/** The paper's default: every candidate alike. */
export const randomPolicy: Policy = {
  name: 'random',
  pick: (candidates, _request, random) => candidates[Math.floor(random() * candidates.length)],
};
