/**
 * How an ingress chooses among nodes: by the configured policy, otherwise by load and conversation. A plan of regions
 * chooses the region first.
 */

import type { BuiltInPolicy } from '../../shared/routing/policies/built-in-policies.ts';
import { RegionShares } from '../../shared/routing/policies/by-region.ts';
import { leastLoadPolicy } from '../../shared/routing/policies/least-load.ts';
import { GPU_WEIGHTS } from '../../shared/routing/policies/node-weights.ts';
import { guardPolicy, type PolicyFault } from '../../shared/routing/policies/operator-policies.ts';
import { prefixAffinity } from '../../shared/routing/policies/prefix-affinity.ts';
import { randomPolicy } from '../../shared/routing/policies/random.ts';
import { roundRobin } from '../../shared/routing/policies/round-robin.ts';
import { scorePolicy } from '../../shared/routing/policies/score.ts';
import { weighted } from '../../shared/routing/policies/weighted.ts';
import type { ModelShares } from '../../shared/routing/region-shares.ts';
import type { Policy, RoutedRequest } from '../../shared/routing/routing-policy.ts';

export type PolicyFor = (request: RoutedRequest) => Policy;

/**
 * Creates the policy of one ingress. Ingresses do not share its memory of earlier requests. `sharesOf`: a model's
 * shares by region while a plan is valid; within a region `score` chooses unless a policy is configured.
 */
export function policyOf(
  name: BuiltInPolicy | Policy | undefined,
  onFault: (kind: PolicyFault, why: string) => void,
  sharesOf: (model: string) => ModelShares | undefined = () => undefined,
): PolicyFor {
  const regions = new RegionShares();
  const inner = policyWithin(name, onFault);
  const score = scorePolicy();
  return (request) => {
    const shares = sharesOf(request.model);
    if (shares === undefined) return inner(request);
    return regions.wrap(name === undefined ? score : inner(request), shares);
  };
}

function policyWithin(
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
  // A request that names a conversation or has a long prompt goes to the node that has cached its prefix. All other
  // requests go to the node with the least load.
  const affinity = prefixAffinity();
  return ({ session, longerPrefixes }) =>
    session === undefined && longerPrefixes === undefined ? leastLoadPolicy : affinity;
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
    case 'score':
      return scorePolicy();
  }
}

/** Processor time of this thread in milliseconds. */
function cpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}
