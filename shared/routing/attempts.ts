/** When an attempt that failed is tried on another node (docs/concepts.md, "Life of a request", 6). */

/** Attempts after the first, by default. */
export const RETRIES_MAX = 3;

/**
 * Failures after which another node may do better. Data, not branches: a time-out is not in it (a slow engine would only make a
 * second one slow), nor is an engine's 4xx (it would say the same).
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

/** Failures that say something about the node's path: it is suspected until it publishes again. */
const SUSPICIOUS: ReadonlySet<string> = new Set(['not_accepted', 'lost', 'gone']);

/** Failures before an engine was asked: nothing was used, and no report comes. */
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

/** Time-outs of an engine: it was waited for as long as the operator allows. */
const TIMED_OUT: ReadonlySet<string> = new Set(['first_byte_timeout', 'stall_timeout']);

/**
 * Statuses of an engine that cannot serve now; another replica may. 404: an engine that has lost its model, or an object that another
 * replica made.
 */
const TRY_ANOTHER_STATUS: ReadonlySet<number> = new Set([404, 429, 502, 503]);

/** A node that says no before its engine hears of it, or that no channel can be had to, is no attempt; so many are passed over. */
export const PASSED_MAX = 12;
const CHEAP: ReadonlySet<string> = new Set(['refused', 'overloaded', 'unreachable', 'suspected', 'seal_refused']);

/**
 * How a request ended at one node, for routing policies. `busy` and `slow`: the node has much to do. `failed`: the node may be broken.
 * `left`: says nothing about the node.
 */
export type Ending = 'complete' | 'left' | 'busy' | 'slow' | 'failed';

/** Of an attempt's failure, or of its engine's status. */
export function endingOf(result: string | number): Ending {
  switch (result) {
    case 'cancelled':
      return 'left';
    // Of a request that its client sealed badly, a node that is well says so.
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

export function passesOver(failure: string): boolean {
  return CHEAP.has(failure);
}

/**
 * Another attempt is taken from what all requests together may repeat. One that moves away from a hanging engine is not: it is
 * cancelled there first, and all that wait at such a node move at once.
 */
export function repeatsWork(failure: string): boolean {
  return !passesOver(failure) && failure !== 'hung';
}

/** Whether a failure says that nothing was used, and so leaves no record. */
export function reachesNoEngine(failure: string): boolean {
  return REACHES_NO_ENGINE.has(failure);
}

/**
 * Whether a client that sends the request again would multiply what was done for it: SDKs send it twice more by themselves. `worked`: engines
 * that worked on it in vain.
 */
export function multiplies(failure: string, worked: number): boolean {
  return worked > 1 || TIMED_OUT.has(failure);
}

export function mayTryAnother(failure: string): boolean {
  return TRY_ANOTHER.has(failure);
}

export function castsSuspicion(failure: string): boolean {
  return SUSPICIOUS.has(failure);
}

/** The node's own word that its engine hangs, or that it is being tried whether it still does. */
export function tellsOfHang(failure: string): boolean {
  return failure === 'hung' || failure === 'suspected';
}

export function mayTryAnotherAfter(status: number): boolean {
  return TRY_ANOTHER_STATUS.has(status);
}
