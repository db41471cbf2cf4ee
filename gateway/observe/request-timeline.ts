/** What is kept of a request whose record of use does not tell its story: how long it waited, which nodes were asked, how it ended. No text. */

/** Attempts and waits of one request. */
export const TIMELINE_STEPS_MAX = 32;

export type TimelineStep =
  /** `at`: milliseconds since the request came. A wait for a free node that ended then. */
  | { at: number; kind: 'wait'; ms: number; outcome: string }
  /** A node was asked: the engine's status, or why none came. */
  | { at: number; kind: 'attempt'; node: string; outcome: string };

export interface RequestTimeline {
  /** As the client knows it: `x-request-id`. */
  id: string;
  /** As records of use and nodes know it. */
  name: string;
  /** Milliseconds since 1970. */
  at: number;
  endpoint: string;
  model: string;
  served: string;
  /** Id of the key. */
  key: string;
  /** The key's owner; absent: none, or of an older version. */
  user?: string | undefined;
  node: string;
  provider: string;
  status: number;
  error: string;
  failedAt?: string | undefined;
  /** To the head of the answer; absent: none went out. */
  firstMs?: number | undefined;
  totalMs: number;
  steps: readonly TimelineStep[];
}

/**
 * A request that the first node asked answered well is told by its record of use alone, so that it costs nothing here; unless its client chose
 * an id, which no record has.
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
