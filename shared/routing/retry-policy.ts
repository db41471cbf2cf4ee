/** Decides when a failed attempt is retried on another node (docs/concepts.md, "Life of a request", 6). */

/** Default number of retries after the first attempt. */
export const RETRIES_MAX = 3;

/**
 * Failures of one node or of the path to it. Another node may succeed after them. Timeouts are not in this set, because
 * a request that is slow at one engine would make a second engine slow, too. An engine's 4xx answers are not in it,
 * because another engine would give the same answer.
 */
const TRY_ANOTHER: ReadonlySet<string> = new Set([
  'unreachable',
  'not_accepted',
  'lost',
  'gone',
  'refused',
  'unknown',
  'engine_unreachable',
  'engine_closed',
  'overloaded',
  'failed',
  'hung',
  'suspected',
  'seal_refused',
  'over_quota',
]);

/** Failures of the path to a node. After such a failure the node is suspected until it publishes its record again. */
const SUSPICIOUS: ReadonlySet<string> = new Set(['not_accepted', 'lost', 'gone']);

/** Failures that happen before an engine receives the request, so no tokens are used and no usage report exists. */
const REACHES_NO_ENGINE: ReadonlySet<string> = new Set([
  'refused',
  'unknown',
  'engine_unreachable',
  'overloaded',
  'not_accepted',
  'unreachable',
  'suspected',
  'seal_refused',
  'over_quota',
]);

/** Engine time-outs: the request has already waited as long as the operator allows. */
const TIMED_OUT: ReadonlySet<string> = new Set(['first_byte_timeout', 'stall_timeout']);

/** Engine statuses that mean "try again later". */
const NOT_NOW: ReadonlySet<number> = new Set([429, 502, 503]);

/**
 * Maximum number of nodes that may refuse one request before their engine is asked. Such a refusal does not count as an
 * attempt.
 */
export const SKIPS_MAX = 12;
const CHEAP: ReadonlySet<string> = new Set([
  'refused',
  'overloaded',
  'unreachable',
  'suspected',
  'seal_refused',
  'over_quota',
]);

/**
 * How a request ended at one node, for routing policies. `busy` and `slow`: the node is under load. `failed`: the node
 * may be broken. `left`: the client disconnected, which says nothing about the node.
 */
export type RequestOutcome = 'complete' | 'left' | 'busy' | 'slow' | 'failed';

/** Maps an attempt's failure code, or its engine's status, to an outcome. */
export function requestOutcome(result: string | number): RequestOutcome {
  switch (result) {
    case 'cancelled':
      return 'left';
    // A badly sealed request is the client's fault, so the node counts as healthy.
    case 'seal_refused':
      return 'complete';
    case 429:
    case 'refused':
    case 'overloaded':
    case 'suspected':
    case 'over_quota':
      return 'busy';
    case 'first_byte_timeout':
    case 'stall_timeout':
    case 'hung':
      return 'slow';
    default:
      return typeof result === 'number' && result < 500 ? 'complete' : 'failed';
  }
}

export function isFreeSkip(failure: string): boolean {
  return CHEAP.has(failure);
}

/**
 * True if a retry after this failure counts against the retry budget. Moving a request away from a hung engine does not
 * count: the request is cancelled there first, and all requests waiting at such a node move together.
 */
export function repeatsWork(failure: string): boolean {
  return !isFreeSkip(failure) && failure !== 'hung';
}

/** True if no engine got the request before this failure, so that there is no usage record. */
export function endsBeforeEngine(failure: string): boolean {
  return REACHES_NO_ENGINE.has(failure);
}

/**
 * True if a retry by the client would repeat much work. SDKs retry twice by default, so the error then asks them not to
 * retry. `worked`: number of engines that worked on the request in vain.
 */
export function wouldRepeatWork(failure: string, worked: number): boolean {
  return worked > 1 || TIMED_OUT.has(failure);
}

export function mayRetry(failure: string): boolean {
  return TRY_ANOTHER.has(failure);
}

export function marksSuspected(failure: string): boolean {
  return SUSPICIOUS.has(failure);
}

/** True if the node itself reported that its engine hangs, or that another request is already probing it. */
export function indicatesHang(failure: string): boolean {
  return failure === 'hung' || failure === 'suspected';
}

/** True if the engine cannot take requests at the moment. */
export function isNotNow(status: number): boolean {
  return NOT_NOW.has(status);
}

/**
 * True if another replica may succeed after this status. 404 is included: the engine may have lost its model, or the
 * requested object may be stored at another replica.
 */
export function mayRetryAfterStatus(status: number): boolean {
  return status === 404 || isNotNow(status);
}
