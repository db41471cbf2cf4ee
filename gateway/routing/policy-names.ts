import { customPolicies } from './custom.ts';

/** Those that are shipped, then those that an operator added. */
export const POLICY_NAMES: readonly string[] = [
  'random',
  'round-robin',
  'weighted',
  'least-load',
  'prefix-affinity',
  ...customPolicies.map(({ name }) => name),
];
