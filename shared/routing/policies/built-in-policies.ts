/** Names of the built-in policies. */
export const SHIPPED_POLICIES = ['random', 'round-robin', 'weighted', 'least-load', 'prefix-affinity'] as const;

export type ShippedPolicy = (typeof SHIPPED_POLICIES)[number];

export function isShippedPolicy(name: string): name is ShippedPolicy {
  return SHIPPED_POLICIES.some((known) => known === name);
}
