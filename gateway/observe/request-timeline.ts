/**
 * The timeline of a request, stored if its usage record does not contain the same facts: how long it waited, which
 * nodes were tried, how it ended. No text.
 */

/** Steps per request: attempts and waits. */
export const TIMELINE_STEPS_MAX = 32;

export type TimelineStep =
  /** A wait for a free node that ended. `at`: milliseconds since the request arrived. */
  | { at: number; kind: 'wait'; ms: number; outcome: string }
  /** An attempt at a node. `outcome`: the engine's status, or why there is none. */
  | { at: number; kind: 'attempt'; node: string; outcome: string };

export interface RequestTimeline {
  /** The id that the client knows: `x-request-id`. */
  id: string;
  /** The id in usage records and at nodes. */
  name: string;
  /** Milliseconds since 1970. */
  at: number;
  endpoint: string;
  model: string;
  served: string;
  /** Id of the key. */
  key: string;
  /** The key's owner. Absent: none, or written by an older version. */
  user?: string | undefined;
  node: string;
  provider: string;
  status: number;
  error: string;
  failedAt?: string | undefined;
  /** Time until the head of the response. Absent: none was sent. */
  firstMs?: number | undefined;
  totalMs: number;
  steps: readonly TimelineStep[];
}

/**
 * A successful request with one attempt is described by its usage record only, so it costs nothing here. Exception: its
 * client chose an id, which no record has.
 */
export function needsTimeline({
  id,
  name,
  status,
  error,
  steps,
}: Pick<RequestTimeline, 'id' | 'name' | 'status' | 'error' | 'steps'>): boolean {
  return id !== name || error !== '' || status >= 400 || steps.length !== 1;
}
