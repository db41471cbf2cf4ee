import { AdaptiveTimeout } from '../timing/adaptive-timeout.ts';
import { RESUME_WINDOW_MS } from '../wire/protocol-constants.ts';

/**
 * Time limit for the acknowledgment of an opening, dialing included. After it the request moves to another node, if
 * there is one.
 */
export const ACCEPT_MS = 1_000;

/** The time limit of one node: longer than ACCEPT_MS if the node has been slower so far, or missed the limit. */
export function newAcceptTimeout(): AdaptiveTimeout {
  return new AdaptiveTimeout({ leastMs: ACCEPT_MS, mostMs: RESUME_WINDOW_MS });
}
