/**
 * Chooses the policy of a request: that of the key, otherwise of its project, of the model, of the gateway's settings,
 * or the default.
 */

import { BUILT_IN_POLICIES } from '../../shared/routing/policies/built-in-policies.ts';
import { RegionShares } from '../../shared/routing/policies/by-region.ts';
import { leastLoadPolicy } from '../../shared/routing/policies/least-load.ts';
import {
  GPU_WEIGHTS,
  type NodeWeightTable,
  nodeWeightTable,
  type WeightRule,
} from '../../shared/routing/policies/node-weights.ts';
import { prefixAffinity } from '../../shared/routing/policies/prefix-affinity.ts';
import { randomPolicy } from '../../shared/routing/policies/random.ts';
import { roundRobin } from '../../shared/routing/policies/round-robin.ts';
import { scorePolicy } from '../../shared/routing/policies/score.ts';
import { weighted } from '../../shared/routing/policies/weighted.ts';
import { modelShares } from '../../shared/routing/region-shares.ts';
import type { Policy, RoutedRequest } from '../../shared/routing/routing-policy.ts';
import type { Account } from '../accounts/account.ts';
import { type GatewaySettings, settingsOf } from '../accounts/gateway-settings.ts';
import { customPolicies, loadedPolicies } from './custom-policies.ts';

/** Returns the names of the shipped policies, and then of those that an operator added. */
export function policyNames(): string[] {
  return [...BUILT_IN_POLICIES, ...[...customPolicies, ...loadedPolicies()].map(({ name }) => name)];
}

const compiled = new WeakMap<readonly WeightRule[], NodeWeightTable>();

function compile(rules: readonly WeightRule[] | undefined): NodeWeightTable {
  if (rules === undefined) return GPU_WEIGHTS;
  let weights = compiled.get(rules);
  if (weights === undefined) {
    weights = nodeWeightTable(rules);
    compiled.set(rules, weights);
  }
  return weights;
}

/**
 * The policies of one isolate. Policies that depend on earlier requests, such as round-robin, remember only those of
 * this isolate.
 */
export class PolicySelector {
  /** The newest settings that `for` was called with; `#weighted` reads them. */
  #settings: GatewaySettings | undefined;
  readonly #affinity = prefixAffinity();
  readonly #score = scorePolicy();
  readonly #weighted = weighted((model) => compile(this.#settings && settingsOf(this.#settings, model).weights));
  readonly #regions = new RegionShares();
  readonly #named: ReadonlyMap<string, Policy>;

  constructor(custom: readonly Policy[] = customPolicies) {
    const all = [randomPolicy, roundRobin(), this.#weighted, leastLoadPolicy, this.#affinity, this.#score, ...custom];
    this.#named = new Map(all.map((policy) => [policy.name, policy]));
  }

  /**
   * Returns the policy for a request. If there is a plan of shares by region, it chooses the region, and the policy
   * chooses within it: `score` unless a setting names another. `now`: milliseconds since the epoch. `region`: the region
   * of this gateway; undefined or empty: it has none.
   */
  for(
    settings: GatewaySettings,
    account: Pick<Account, 'routing'>,
    request: RoutedRequest,
    model: string,
    { region, now = Date.now() }: { region?: string | undefined; now?: number } = {},
  ): Policy {
    const shares = modelShares(settings.regionPlan, model, now, region || undefined);
    const unnamed = shares === undefined ? this.#unplanned(request) : this.#score;
    const policy = this.#within(settings, account, unnamed, model);
    return shares === undefined ? policy : this.#regions.wrap(policy, shares);
  }

  #within(settings: GatewaySettings, { routing }: Pick<Account, 'routing'>, unnamed: Policy, model: string): Policy {
    this.#settings = settings;
    const { policy, weights } = settingsOf(settings, model);
    // A model with weights has the policy `weighted` unless its settings name another.
    const ofModel = policy ?? (weights === undefined ? undefined : 'weighted');
    const name = routing.find((one) => one.policy !== undefined)?.policy ?? ofModel ?? settings.routing.policy;
    const own = loadedPolicies();
    const chosen = name === undefined ? own[0] : (own.find((policy) => policy.name === name) ?? this.#named.get(name));
    return chosen ?? unnamed;
  }

  /**
   * A request of a conversation, or with a long prompt, goes to the node that has its prefix in its cache. Others go to
   * the least loaded node.
   */
  #unplanned({ session, longerPrefixes }: RoutedRequest): Policy {
    return session === undefined && longerPrefixes === undefined ? leastLoadPolicy : this.#affinity;
  }
}
