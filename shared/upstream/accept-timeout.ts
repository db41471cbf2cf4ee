import { AdaptiveTimeout } from '../patience/adaptive-timeout.ts';
import { RESUME_WINDOW_MS } from '../wire/limits.ts';

/** An opening that is not acknowledged within this, dialling included, moves the request to another node, where there is one. */
export const ACCEPT_MS = 1_000;

/** Of one node: longer than ACCEPT_MS where the node took longer so far, or did not answer in time. */
export function acceptTimeout(): AdaptiveTimeout {
  return new AdaptiveTimeout({ leastMs: ACCEPT_MS, mostMs: RESUME_WINDOW_MS });
}
