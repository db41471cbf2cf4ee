import type { Policy } from '../routing-policy.ts';
import { statelessPolicy } from './stateless.ts';

/** The paper's default: uniform over the candidates. */
export const randomPolicy: Policy = statelessPolicy(
  'random',
  (candidates, _request, random) => candidates[Math.floor(random() * candidates.length)],
);
