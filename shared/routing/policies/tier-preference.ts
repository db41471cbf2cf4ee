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
/** Nodes of a list that are looked at to find one that is little busy, spread over the list. */
const LOOKS_MAX = 32;
/** Maximum lists that are kept for one list, by the second after which a job must end. */
const ENDINGS_MAX = 16;

interface Tiers {
  stable: readonly Candidate[];
  volatile: readonly Candidate[];
  /** The first end of a job, in milliseconds since 1970. */
  firstEnd: number;
  /** By the second in which a response is expected to end; at most ENDINGS_MAX. */
  endings: Map<number, Ending>;
}

interface Ending {
  lasting: readonly Candidate[];
  /** Nodes with jobs that end before the response. */
  ending: readonly Candidate[];
}

/** By list, because policies get the same list until something about the nodes changes. */
const known = new WeakMap<readonly Candidate[], Tiers>();

function tiersOf(candidates: readonly Candidate[]): Tiers {
  const before = known.get(candidates);
  if (before !== undefined) return before;
  const tiers = {
    stable: candidates.filter(({ tier }) => tier === 'stable'),
    volatile: candidates.filter(({ tier }) => tier !== 'stable'),
    firstEnd: candidates.reduce(
      (first, { jobEndsAt }) => Math.min(first, jobEndsAt ?? first),
      Number.POSITIVE_INFINITY,
    ),
    endings: new Map(),
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
  const lasting = tiersOf(candidates).firstEnd >= until ? candidates : withoutEnding(candidates, until, now);
  const { stable, volatile } = tiersOf(lasting);
  const [better, others] = priority === 'batch' ? [volatile, stable] : [stable, volatile];
  return others.length > 0 && unlessBusy(better, others, now) ? better : lasting;
}

function withoutEnding(candidates: readonly Candidate[], until: number, now: number): readonly Candidate[] {
  const { lasting, ending } = endingsOf(candidates, Math.ceil(until / 1000));
  return unlessBusy(lasting, ending, now) ? lasting : candidates;
}

/** The same lists for all requests of a second, so that policies keep what they know of a list. */
function endingsOf(candidates: readonly Candidate[], second: number): Ending {
  const { endings } = tiersOf(candidates);
  const before = endings.get(second);
  if (before !== undefined) return before;
  const ends = ({ jobEndsAt }: Candidate) => jobEndsAt !== undefined && jobEndsAt < second * 1000;
  const made = { lasting: candidates.filter((one) => !ends(one)), ending: candidates.filter(ends) };
  if (endings.size >= ENDINGS_MAX) endings.clear();
  endings.set(second, made);
  return made;
}

/** True if the better nodes should get the request: there are some, and they are not far busier than the others. */
function unlessBusy(better: readonly Candidate[], others: readonly Candidate[], now: number): boolean {
  const least = leastBusy(better, now);
  if (least === undefined) return false;
  const other = leastBusy(others, now);
  if (other === undefined) return true;
  return (least.load?.waiting ?? 0) === 0 && openRequests(least) <= 2 * openRequests(other) + SLACK;
}

/** The least busy of at most LOOKS_MAX nodes, of others in each millisecond; of a short list, of all. */
function leastBusy(candidates: readonly Candidate[], now: number): Candidate | undefined {
  const step = Math.max(1, Math.ceil(candidates.length / LOOKS_MAX));
  let least: Candidate | undefined;
  for (let at = Math.floor(now) % step; at < candidates.length; at += step) {
    const candidate = candidates[at];
    if (candidate !== undefined && (least === undefined || openRequests(candidate) < openRequests(least)))
      least = candidate;
  }
  return least;
}
