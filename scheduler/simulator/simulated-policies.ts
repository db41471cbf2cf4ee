import type { Candidate } from '../../shared/routing/candidates.ts';
import { randomPolicy } from '../../shared/routing/policies/random.ts';
import { statelessPolicy } from '../../shared/routing/policies/stateless.ts';
import type { Policy } from '../../shared/routing/routing-policy.ts';
import { SchedulerError } from '../errors.ts';

/** A replica of the simulator, as a routing policy sees it. */
export interface SimulatedReplica extends Candidate {
  /** The replica's share of the traffic in the plan. */
  weight: number;
  /** Number of requests that it holds now. */
  readonly inFlight: number;
}

/** `readsLoad`: the policy reads `load`, so the simulator must run all replicas up to each arrival. */
export interface SimulatedPolicy {
  policy: Policy;
  readsLoad: boolean;
}

export const POLICY_NAMES = ['weighted', 'random', 'round-robin', 'least-loaded'] as const;

/** Returns a policy with new state. Its `pick` must always be called with the same `replicas` objects. */
export function policyNamed(name: string, replicas: readonly SimulatedReplica[]): SimulatedPolicy {
  switch (name) {
    case 'random':
      return { policy: randomPolicy, readsLoad: false };
    case 'weighted':
      return { policy: weighted(replicas), readsLoad: false };
    case 'round-robin':
      return { policy: roundRobin(), readsLoad: false };
    case 'least-loaded':
      return { policy: leastLoaded(replicas), readsLoad: true };
    default:
      throw new SchedulerError('usage', `there is no policy ${name}; there are ${POLICY_NAMES.join(', ')}`);
  }
}

/**
 * Smooth weighted round-robin: of any n consecutive picks, each replica gets n times its share, plus or minus one pick.
 * So bursts are spread evenly, too. Random picks by weight would sometimes hit one replica several times in a row, and
 * queue there.
 */
function weighted(replicas: readonly SimulatedReplica[]): Policy {
  const weights = new Map(replicas.map(({ session, weight }) => [session, weight]));
  const credit = new Map(replicas.map(({ session }) => [session, 0]));
  return statelessPolicy('weighted', (candidates) => {
    let total = 0;
    let best: Candidate | undefined;
    let most = Number.NEGATIVE_INFINITY;
    for (const candidate of candidates) {
      const weight = weights.get(candidate.session) ?? 0;
      const now = (credit.get(candidate.session) ?? 0) + weight;
      credit.set(candidate.session, now);
      total += weight;
      if (weight > 0 && now > most) {
        most = now;
        best = candidate;
      }
    }
    if (best) credit.set(best.session, most - total);
    return best;
  });
}

function roundRobin(): Policy {
  let turn = 0;
  return statelessPolicy('round-robin', (candidates) => candidates[turn++ % candidates.length]);
}

/**
 * Picks the replica with the fewest requests relative to its share of traffic: a GPU of twice the speed holds twice as
 * many.
 */
function leastLoaded(replicas: readonly SimulatedReplica[]): Policy {
  const weights = new Map(replicas.map(({ session, weight }) => [session, weight]));
  return statelessPolicy('least-loaded', (candidates) => {
    let best: Candidate | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const candidate of candidates) {
      const pressure = (candidate.inFlight + 1) / (weights.get(candidate.session) || 1e-9);
      if (pressure < least) {
        least = pressure;
        best = candidate;
      }
    }
    return best;
  });
}
