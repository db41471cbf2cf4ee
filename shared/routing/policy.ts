import type { Ending } from './attempts.ts';
import type { Candidate } from './candidates.ts';

/** What a policy may know of a request. */
export interface RoutedRequest {
  /** The one that is served: an alias is resolved. */
  model: string;
  project?: string | undefined;
  priority: 'interactive' | 'batch';
  /** Where the client is, if that is known. */
  region?: string | undefined;
  /** Estimated from the body's length. */
  inputTokens: number;
  maxTokens?: number | undefined;
  /** Name of its kind, judged when it came; absent where its model has no kinds. */
  kind?: string | undefined;
  /** Names the conversation: the client's `x-otela-session`, `prompt_cache_key` or `user`, apart for each project. */
  session?: string | undefined;
  /** Of the prompt's beginning, for requests that name no conversation. */
  prefixHash?: number | undefined;
}

/**
 * Chooses among candidates. `pick` is synchronous and pure but for `random`, in [0, 1), and for what the policy itself remembers
 * of earlier requests, which it bounds. It gets the same array until something about the nodes changes, so that what is worked
 * out of it may be kept by it.
 */
export interface Policy {
  readonly name: string;
  pick(candidates: readonly Candidate[], request: RoutedRequest, random: () => number): Candidate | undefined;
  /** The request goes to that candidate now. */
  onRequestStart(candidate: Candidate, request: RoutedRequest): void;
  /** Once for each start. */
  onRequestEnd(candidate: Candidate, request: RoutedRequest, ending: Ending): void;
}
