import { AttemptError } from '../attempts/attempt-error.ts';
import type { AttemptFailure } from '../attempts/attempt-request.ts';
import { ApiError } from '../openai/api-errors.ts';
import type { BusyNodeMemory } from '../routing/busy-nodes.ts';
import { isFreeSkip, mayRetry } from '../routing/retry-policy.ts';

/** Nodes that one turn tries if none was named: the place in the queue is worth more than a long search. */
const TRIES_IN_TURN = 3;
/** Busy nodes whose ended requests it waits for. */
const BUSY_MAX = 16;

/** Failures without an engine: the node was gone already, or its engine was. */
const ABSENT: ReadonlySet<AttemptFailure> = new Set<AttemptFailure>(['not_accepted', 'engine_unreachable']);

/** Failures that end the node's part. The next node may do better, and so may this one when it is back. */
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
  busyNodes: BusyNodeMemory;
  /** It may wait if no node is free. */
  queues: boolean;
  /** True if an allowed node has existed, though none has capacity now. */
  hopes(error: ApiError): boolean;
  /** Another attempt can have the whole body. */
  repeatable(): boolean;
  retriesMax: number;
  /**
   * The client has received the beginning of the answer, so it also waits where another request would be told that its
   * engine failed.
   */
  begun?: boolean;
}

/** One request's search for a node: what it tried, which nodes were busy, and its current turn. */
export class QueueEntry {
  /** Attempts over all turns; their numbers never repeat. */
  attempts = 0;
  /** Milliseconds in the queue, over all waits. */
  queuedMs = 0;
  /** It is in the queue now. */
  queued = false;
  readonly #options: QueueEntryOptions;
  #turn: { session?: string } | undefined;
  /** Attempts made before this turn. */
  #before = 0;
  #busy = new Set<string>();
  /** Attempts that failed in another way than by a refusal. */
  #failures = 0;

  constructor(options: QueueEntryOptions) {
    this.#options = options;
  }

  /** The client has received the beginning of the answer. */
  get begun(): boolean {
    return this.#options.begun ?? false;
  }

  /** Remaining attempts that may fail. */
  get retriesLeft(): number {
    return Math.max(0, this.#options.retriesMax - this.#failures);
  }

  /** Nodes that had no place for it. */
  get busy(): string[] {
    return [...this.#busy];
  }

  /** A turn starts. */
  begin(turn: { session?: string }): void {
    this.#turn = turn;
    this.#before = this.attempts;
    this.#busy = new Set();
    if (turn.session !== undefined) this.#options.busyNodes.clear(turn.session);
  }

  /** Of the candidates, those that should be asked: none if all of them said a moment ago that they are busy. */
  among<N extends { readonly session: string }>(candidates: readonly N[], now: number): readonly N[] {
    const { busyNodes, queues } = this.#options;
    const tried = this.attempts - this.#before;
    if (this.#turn !== undefined) {
      if (tried >= TRIES_IN_TURN) return [];
      const told = candidates.find(({ session }) => session === this.#turn?.session);
      if (told !== undefined) return [told];
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
    const { queues, hopes, repeatable, retriesMax, begun } = this.#options;
    if (!queues || !(error instanceof ApiError) || this.#failures > retriesMax || !repeatable()) return false;
    const { code, cause } = error;
    if (code === 'no_capacity' && hopes(error)) return true;
    if (!(cause instanceof AttemptError)) return false;
    if (this.#busy.size > 0) return true;
    return (begun ? mayRetry(cause.code) : GONE.has(cause.code)) && hopes(error);
  }
}
