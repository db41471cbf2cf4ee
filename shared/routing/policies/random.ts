import type { Policy } from '../policy.ts';
import { statelessPolicy } from './stateless.ts';

/** The paper's default: every candidate alike. */
export const randomPolicy: Policy = statelessPolicy(
  'random',
  (candidates, _request, random) => candidates[Math.floor(random() * candidates.length)],
);
