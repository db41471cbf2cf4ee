import type { AttemptFailure } from '../../shared/asking/attempt.ts';
import { PathError } from '../../shared/asking/path-error.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import { passesOver } from '../../shared/routing/attempts.ts';
import { busyNodes } from './busy.ts';

/** Nodes that one turn tries, where none was told of: its place in the queue is worth more than a long search. */
const TRIES_IN_TURN = 3;
/** Busy nodes whose ends it listens for. */
const BUSY_MAX = 16;

/** What one request knows of its way to a node: what it tried, who was busy, and whose turn it is. */
export class Waiter {
  /** Attempts made, over all its turns: their numbers never repeat. */
  attempts = 0;
  /** In the queue, over all its waits. */
  queuedMs = 0;
  readonly #queues: boolean;
  readonly #hopes: () => boolean;
  readonly #retriesMax: number;
  #turn: { session?: string } | undefined;
  #busy = new Set<string>();
  /** Attempts that ended worse than with a no. */
  #failures = 0;

  /** `queues`: where nobody is free it may wait; `hopes`: some node that it may go to was ever there. */
  constructor({ queues, hopes, retriesMax }: { queues: boolean; hopes: () => boolean; retriesMax: number }) {
    this.#queues = queues;
    this.#hopes = hopes;
    this.#retriesMax = retriesMax;
  }

  /** Attempts that it may still fail with. */
  get retriesLeft(): number {
    return Math.max(0, this.#retriesMax - this.#failures);
  }

  /** Nodes that had no place for it. */
  get busy(): string[] {
    return [...this.#busy];
  }

  /** It is let try. */
  begin(turn: { session?: string }): void {
    this.#turn = turn;
    this.#busy = new Set();
    if (turn.session !== undefined) busyNodes.clear(turn.session);
  }

  /** Of those that it could ask, those that it should: none where all of them said a moment ago that they are busy. */
  among<N extends { readonly session: string }>(candidates: readonly N[], tried: number, now: number): readonly N[] {
    if (this.#turn !== undefined) {
      if (tried >= TRIES_IN_TURN) return [];
      const told = candidates.find(({ session }) => session === this.#turn?.session);
      if (told !== undefined) return [told];
    }
    if (busyNodes.isEmpty(now)) return candidates;
    const free = candidates.filter(({ session }) => !busyNodes.has(session, now));
    if (free.length > 0 || !this.#queues) return free.length > 0 ? free : candidates;
    if (this.#turn !== undefined && tried === 0) return candidates;
    for (const { session } of candidates) this.#note(session);
    return [];
  }

  onFailure(session: string, code: AttemptFailure, now: number): void {
    if (!passesOver(code)) this.#failures++;
    if (code !== 'overloaded') return;
    busyNodes.mark(session, now);
    this.#note(session);
  }

  #note(session: string): void {
    if (this.#busy.size < BUSY_MAX) this.#busy.add(session);
  }

  /** Whether a request that ended so may find a node by waiting. */
  mayWait(error: unknown): boolean {
    if (!this.#queues || !(error instanceof ApiError) || this.#failures > this.#retriesMax) return false;
    const { code, cause } = error;
    return (code === 'no_capacity' && this.#hopes()) || (cause instanceof PathError && this.#busy.size > 0);
  }
}
