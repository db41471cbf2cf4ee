/** Decides when a failed attempt is retried on another node (docs/concepts.md, "Life of a request", 6). */

/** Default number of retries after the first attempt. */
export const RETRIES_MAX = 3;

/**
 * Failures that another node may not have. Time-outs are not in this list, because a slow engine would only make a
 * second one slow. Neither are an engine's 4xx answers, because another engine would give the same answer.
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
]);

/** Failures of the path to a node. The node stays suspected until it publishes again. */
const SUSPICIOUS: ReadonlySet<string> = new Set(['not_accepted', 'lost', 'gone']);

/** Failures before an engine was asked. They use nothing and produce no usage report. */
const REACHES_NO_ENGINE: ReadonlySet<string> = new Set([
  'refused',
  'unknown',
  'engine_unreachable',
  'overloaded',
  'not_accepted',
  'unreachable',
  'suspected',
  'seal_refused',
]);

/** Engine time-outs. The request waited as long as the operator allows. */
const TIMED_OUT: ReadonlySet<string> = new Set(['first_byte_timeout', 'stall_timeout']);

/** Engine statuses that say "not now". */
const NOT_NOW: ReadonlySet<number> = new Set([429, 502, 503]);

/**
 * A refusal before the engine is asked does not count as an attempt. At most this many nodes are skipped per request.
 */
export const SKIPS_MAX = 12;
const CHEAP: ReadonlySet<string> = new Set(['refused', 'overloaded', 'unreachable', 'suspected', 'seal_refused']);

/**
 * How a request ended at one node, for routing policies. `busy` and `slow`: the node has much to do. `failed`: the node
 * may be broken. `left`: the client left, which says nothing about the node.
 */
export type RequestOutcome = 'complete' | 'left' | 'busy' | 'slow' | 'failed';

/** Maps an attempt's failure, or its engine's status, to an ending. */
export function requestOutcome(result: string | number): RequestOutcome {
  switch (result) {
    case 'cancelled':
      return 'left';
    // A badly sealed request is the client's fault; the node is healthy.
    case 'seal_refused':
      return 'complete';
    case 429:
    case 'refused':
    case 'overloaded':
    case 'suspected':
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
 * True if a retry counts against the retry budget. Moving away from a hung engine does not count: the request is
 * cancelled there first, and all requests that wait at such a node move together.
 */
export function repeatsWork(failure: string): boolean {
  return !isFreeSkip(failure) && failure !== 'hung';
}

/** True if the failure means that no engine was asked, so there is no usage record. */
export function endsBeforeEngine(failure: string): boolean {
  return REACHES_NO_ENGINE.has(failure);
}

/**
 * True if a retry by the client would multiply the work already done: SDKs retry twice without being asked. `worked`:
 * number of engines that worked on the request in vain.
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

/** The node itself reports that its engine hangs, or that a probe of it is running. */
export function indicatesHang(failure: string): boolean {
  return failure === 'hung' || failure === 'suspected';
}

/** True if the engine cannot take requests at the moment. */
export function isNotNow(status: number): boolean {
  return NOT_NOW.has(status);
}

/**
 * True if another replica may answer. 404 is included: the engine may have lost its model, or the object may belong to
 * another replica.
 */
export function mayRetryAfterStatus(status: number): boolean {
  return status === 404 || isNotNow(status);
}
