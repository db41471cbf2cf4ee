import { AttemptError } from '../attempts/attempt-error.ts';
import type { AttemptFailure } from '../attempts/attempt-request.ts';
import { ApiError } from '../openai/api-errors.ts';
import type { BusyNodes } from '../routing/busy-nodes.ts';
import { isFreeSkip, mayRetry } from '../routing/retry-policy.ts';

/**
 * Maximum number of nodes that are tried in one turn, if the turn is for any node. After that the request keeps its
 * place in the queue, which is better than a long search.
 */
const TRIES_IN_TURN = 3;
/** Maximum number of busy nodes at which the request waits for other requests to end. */
const BUSY_MAX = 16;

/** Failures before an engine was involved, because the node or its engine was already gone. */
const ABSENT: ReadonlySet<AttemptFailure> = new Set<AttemptFailure>(['not_accepted', 'engine_unreachable']);

/**
 * Failures after which the node is not tried again in this turn. Another node may succeed, and this node may succeed
 * after it has come back.
 */
const GONE: ReadonlySet<AttemptFailure> = new Set<AttemptFailure>([
  ...ABSENT,
  'unreachable',
  'suspected',
  'hung',
  'lost',
  'gone',
  'unknown',
]);

export interface QueueEntryOptions {
  /** Shared by all requests of this caller. */
  busyNodes: BusyNodes;
  /** True if the request may wait when no node is free. */
  queues: boolean;
  /**
   * True if a request that failed with `error` may find a node by waiting, for example because an allowed node existed
   * before.
   */
  isWorthWaiting(error: ApiError): boolean;
  /** True if another attempt can have the whole body. */
  repeatable(): boolean;
  retriesMax: number;
  /**
   * True if the client has received the beginning of the response. Such a request also waits after failures of its
   * engine that other requests report to their client.
   */
  begun?: boolean;
}

/** One request's search for a node: what it tried, which nodes were busy, and its current turn. */
export class QueueEntry {
  /** Number of attempts over all turns. Attempt numbers never repeat. */
  attempts = 0;
  /** Milliseconds in the queue, summed over all waits. */
  queuedMs = 0;
  /** True while the request is in the queue. */
  queued = false;
  readonly #options: QueueEntryOptions;
  #turn: { session?: string } | undefined;
  /** Number of attempts before this turn. */
  #before = 0;
  #busy = new Set<string>();
  /** Number of attempts that failed. Refusals and absent nodes do not count. */
  #failures = 0;

  constructor(options: QueueEntryOptions) {
    this.#options = options;
  }

  /** True if the client has received the beginning of the response. */
  get begun(): boolean {
    return this.#options.begun ?? false;
  }

  /** Number of further attempts that may fail. */
  get retriesLeft(): number {
    return Math.max(0, this.#options.retriesMax - this.#failures);
  }

  /** Nodes that had no free place for the request. */
  get busy(): string[] {
    return [...this.#busy];
  }

  /** Call when a turn starts. */
  begin(turn: { session?: string }): void {
    this.#turn = turn;
    this.#before = this.attempts;
    this.#busy = new Set();
    if (turn.session !== undefined) this.#options.busyNodes.clear(turn.session);
  }

  /**
   * The candidates that should be tried. If the request may wait, empty when all of them have just reported that they
   * are busy.
   */
  selectCandidates<N extends { readonly session: string }>(candidates: readonly N[], now: number): readonly N[] {
    const { busyNodes, queues } = this.#options;
    const tried = this.attempts - this.#before;
    if (this.#turn !== undefined) {
      if (tried >= TRIES_IN_TURN) return [];
      const target = candidates.find(({ session }) => session === this.#turn?.session);
      if (target !== undefined) return [target];
    }
    if (busyNodes.isEmpty(now)) return candidates;
    const free = candidates.filter(({ session }) => !busyNodes.has(session, now));
    if (free.length > 0 || !queues) return free.length > 0 ? free : candidates;
    if (this.#turn !== undefined && tried === 0) return candidates;
    for (const { session } of candidates) this.#note(session);
    return [];
  }

  onFailure(session: string, code: AttemptFailure, now: number): void {
    if (!isFreeSkip(code) && !ABSENT.has(code)) this.#failures++;
    if (code !== 'overloaded') return;
    this.#options.busyNodes.mark(session, now);
    this.#note(session);
  }

  #note(session: string): void {
    if (this.#busy.size < BUSY_MAX) this.#busy.add(session);
  }

  /** True if a request that ended with this error may find a node by waiting. */
  mayWait(error: unknown): boolean {
    const { queues, isWorthWaiting, repeatable, retriesMax, begun } = this.#options;
    if (!queues || !(error instanceof ApiError) || this.#failures > retriesMax || !repeatable()) return false;
    const { code, cause } = error;
    if (code === 'no_capacity' && isWorthWaiting(error)) return true;
    if (!(cause instanceof AttemptError)) return false;
    if (this.#busy.size > 0) return true;
    return (begun ? mayRetry(cause.code) : GONE.has(cause.code)) && isWorthWaiting(error);
  }
}
