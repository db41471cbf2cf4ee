export const BUILT_IN_POLICIES = [
  'random',
  'round-robin',
  'weighted',
  'least-load',
  'prefix-affinity',
  'score',
] as const;

export type BuiltInPolicy = (typeof BUILT_IN_POLICIES)[number];

export function isBuiltInPolicy(name: string): name is BuiltInPolicy {
  return BUILT_IN_POLICIES.some((known) => known === name);
}
