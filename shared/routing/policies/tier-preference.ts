/**
 * Tiers of service (paper §7.3): interactive requests prefer nodes that stay, batches prefer nodes that may leave at
 * any time, and a request avoids a node if its job ends before the response.
 */
import type { Candidate } from '../candidates.ts';
import type { RoutedRequest } from '../routing-policy.ts';
import { openRequests } from './open-requests.ts';

/** Tokens per second that a response is assumed to have at least. */
const SLOW_TOKENS_PER_SECOND = 20;
/** A response without `max_tokens` is assumed to take at most this long. Most take less than a minute. */
const USUAL_MS = 60_000;
/**
 * Preferred nodes get requests while the least busy of them has no queue, and at most twice as many requests as the
 * least busy other node, plus these. This number hardly slows an engine's batch.
 */
const SLACK = 8;

interface Tiers {
  stable: readonly Candidate[];
  volatile: readonly Candidate[];
  /** The first end of a job, in milliseconds since 1970. */
  firstEnd: number;
}

/** By list, because policies get the same list until something about the nodes changes. */
const known = new WeakMap<readonly Candidate[], Tiers>();

function tiersOf(candidates: readonly Candidate[]): Tiers {
  const before = known.get(candidates);
  if (before !== undefined) return before;
  const tiers = {
    stable: candidates.filter(({ tier }) => tier === 'stable'),
    volatile: candidates.filter(({ tier }) => tier !== 'stable'),
    firstEnd: Math.min(...candidates.map(({ jobEndsAt }) => jobEndsAt ?? Number.POSITIVE_INFINITY)),
  };
  known.set(candidates, tiers);
  return tiers;
}

/**
 * The candidates that the request's tier prefers. All of them if none is preferred, or if the preferred ones are far
 * busier than the others. `now`: milliseconds since 1970.
 */
export function preferredTier(
  candidates: readonly Candidate[],
  { priority, maxTokens }: Pick<RoutedRequest, 'priority' | 'maxTokens'>,
  now: number,
): readonly Candidate[] {
  if (candidates.length < 2) return candidates;
  const until = now + (maxTokens === undefined ? USUAL_MS : (maxTokens / SLOW_TOKENS_PER_SECOND) * 1000);
  const lasting = tiersOf(candidates).firstEnd >= until ? candidates : withoutEnding(candidates, until);
  const { stable, volatile } = tiersOf(lasting);
  const [better, others] = priority === 'batch' ? [volatile, stable] : [stable, volatile];
  return others.length > 0 && unlessBusy(better, others) ? better : lasting;
}

function withoutEnding(candidates: readonly Candidate[], until: number): readonly Candidate[] {
  const ends = ({ jobEndsAt }: Candidate) => jobEndsAt !== undefined && jobEndsAt < until;
  const lasting = candidates.filter((candidate) => !ends(candidate));
  return unlessBusy(lasting, candidates.filter(ends)) ? lasting : candidates;
}

/** True if the better nodes should get the request: there are some, and they are not far busier than the others. */
function unlessBusy(better: readonly Candidate[], others: readonly Candidate[]): boolean {
  const least = leastBusy(better);
  if (least === undefined) return false;
  const other = leastBusy(others);
  if (other === undefined) return true;
  return (least.load?.waiting ?? 0) === 0 && openRequests(least) <= 2 * openRequests(other) + SLACK;
}

function leastBusy(candidates: readonly Candidate[]): Candidate | undefined {
  let least: Candidate | undefined;
  for (const candidate of candidates)
    if (least === undefined || openRequests(candidate) < openRequests(least)) least = candidate;
  return least;
}
