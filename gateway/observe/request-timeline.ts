/**
 * The timeline of a request: how long it waited, which nodes were tried, how it ended. It contains no text, and is
 * stored only if the request's usage record does not contain the same facts.
 */

/** Maximum steps (attempts and waits) that are kept per request. */
export const TIMELINE_STEPS_MAX = 32;

export type TimelineStep =
  /** A wait for a free node that has ended. `at`: milliseconds since the request arrived. */
  | { at: number; kind: 'wait'; ms: number; outcome: string }
  /**
   * An attempt at a node. `outcome`: the engine's status, or why there is none. `tier`: that of the node, if the
   * request's class preferred it to another tier.
   */
  | { at: number; kind: 'attempt'; node: string; outcome: string; tier?: string };

export interface RequestTimeline {
  /** The id that the client knows: `x-request-id`. */
  id: string;
  /** The internal id, which usage records and nodes also have. */
  name: string;
  /** When the request arrived; milliseconds since the epoch. */
  at: number;
  endpoint: string;
  model: string;
  served: string;
  /** Id of the key. */
  key: string;
  /** Id of the key's user. Absent: there is none, or an older version wrote the timeline. */
  user?: string | undefined;
  node: string;
  provider: string;
  status: number;
  error: string;
  failedAt?: string | undefined;
  /** Milliseconds until the head of the response; absent: no head was sent. */
  firstMs?: number | undefined;
  totalMs: number;
  steps: readonly TimelineStep[];
}

/**
 * True unless the usage record has the same facts. A successful request with one attempt needs no timeline, unless the
 * client chose its id, which no usage record contains.
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
