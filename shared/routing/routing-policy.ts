import type { Candidate } from './candidates.ts';
import type { RequestOutcome } from './retry-policy.ts';

/** What a policy may know about a request. */
export interface RoutedRequest {
  /** The served model, with aliases resolved. */
  model: string;
  project?: string | undefined;
  priority: 'interactive' | 'batch';
  /** Region of the client, if known. */
  region?: string | undefined;
  /** Tokens of the prompt, estimated from the length of the body. */
  inputTokens: number;
  maxTokens?: number | undefined;
  /** Milliseconds within which the client wants the first token of a stream. */
  firstTokenMs?: number | undefined;
  /** Name of the request's kind, which was predicted on arrival. Absent if the model has no kinds. */
  kind?: string | undefined;
  /** Identifies the conversation: the hash of its name at the client, separate for each project. */
  session?: string | undefined;
  /** Hash of the prompt's beginning, for requests that name no conversation. */
  prefixHash?: number | undefined;
  /** Hashes of longer beginnings of the prompt, shortest first, by which a later turn of a conversation is recognized. */
  longerPrefixes?: readonly number[] | undefined;
}

/**
 * Chooses among candidates. `pick` is synchronous. Its result depends only on its arguments (`random` returns a number
 * in [0, 1)) and on what the policy remembers of earlier requests, which the policy must bound. `pick` receives the
 * same array until something about the nodes changes, so a policy can cache results per array.
 */
export interface Policy {
  readonly name: string;
  /** True: `pick` gets only the candidates that the request's tier prefers; see policies/tier-preference.ts. */
  readonly prefersTiers?: boolean;
  pick(candidates: readonly Candidate[], request: RoutedRequest, random: () => number): Candidate | undefined;
  /** Called when the request is sent to that candidate. */
  onRequestStart(candidate: Candidate, request: RoutedRequest): void;
  /** Called once for each `onRequestStart`, when the request has ended at that candidate. */
  onRequestEnd(candidate: Candidate, request: RoutedRequest, ending: RequestOutcome): void;
}
