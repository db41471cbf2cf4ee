import type { Policy } from '../routing-policy.ts';
import { statelessPolicy } from './stateless.ts';

/** Chooses uniformly among the candidates. This is the default of the OpenTela paper. */
export const randomPolicy: Policy = statelessPolicy(
  'random',
  (candidates, _request, random) => candidates[Math.floor(random() * candidates.length)],
);
