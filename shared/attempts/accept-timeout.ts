import { AdaptiveTimeout } from '../timing/adaptive-timeout.ts';
import { RESUME_WINDOW_MS } from '../wire/protocol-constants.ts';

/**
 * Minimum time limit for the node to acknowledge an opening, including the dial. After the limit the request moves to
 * another node if one is available.
 */
export const ACCEPT_MS = 1_000;

/**
 * The time limit of one node. It grows above ACCEPT_MS after the node has acknowledged slowly, or has exceeded the
 * limit.
 */
export function newAcceptTimeout(): AdaptiveTimeout {
  return new AdaptiveTimeout({ leastMs: ACCEPT_MS, mostMs: RESUME_WINDOW_MS });
}
