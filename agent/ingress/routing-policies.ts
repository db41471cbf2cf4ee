/** How an ingress chooses among nodes: by the configured policy, otherwise by load and conversation. */

import type { BuiltInPolicy } from '../../shared/routing/policies/built-in-policies.ts';
import { leastLoadPolicy } from '../../shared/routing/policies/least-load.ts';
import { GPU_WEIGHTS } from '../../shared/routing/policies/node-weights.ts';
import { guardPolicy, type PolicyFault } from '../../shared/routing/policies/operator-policies.ts';
import { prefixAffinity } from '../../shared/routing/policies/prefix-affinity.ts';
import { randomPolicy } from '../../shared/routing/policies/random.ts';
import { roundRobin } from '../../shared/routing/policies/round-robin.ts';
import { weighted } from '../../shared/routing/policies/weighted.ts';
import type { Policy, RoutedRequest } from '../../shared/routing/routing-policy.ts';

export type PolicyFor = (request: RoutedRequest) => Policy;

/** Creates the policy of one ingress. Ingresses do not share its memory of earlier requests. */
export function policyOf(
  name: BuiltInPolicy | Policy | undefined,
  onFault: (kind: PolicyFault, why: string) => void,
): PolicyFor {
  if (typeof name === 'object') {
    const policy = guardPolicy(name, { fallback: leastLoadPolicy, now: () => performance.now(), cpuMs, onFault });
    return () => policy;
  }
  if (name !== undefined) {
    const policy = made(name);
    return () => policy;
  }
  // A request that names a conversation goes to the node that has cached the conversation. All other requests go to the
  // node with the least load.
  const affinity = prefixAffinity();
  return ({ session }) => (session === undefined ? leastLoadPolicy : affinity);
}

function made(name: BuiltInPolicy): Policy {
  switch (name) {
    case 'random':
      return randomPolicy;
    case 'round-robin':
      return roundRobin();
    case 'weighted':
      return weighted(() => GPU_WEIGHTS);
    case 'least-load':
      return leastLoadPolicy;
    case 'prefix-affinity':
      return prefixAffinity();
  }
}

/** Processor time of this thread in milliseconds. */
function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}
