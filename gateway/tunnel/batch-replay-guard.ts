import { BATCH_SKEW_MS, type BatchStamp } from '../../shared/batch/batch-signature.ts';
import { ReplayMemory } from '../../shared/collections/replay-memory.ts';

/**
 * Maximum stamps of one session: two minutes at 160 requests a second. A node asks for batch lines a few times a
 * second.
 */
const REMEMBERED_MAX = 20_000;

/**
 * Result of a check. `stale`: signed too long ago, too far in the future, or before this object was created. The object
 * does not know which requests arrived before.
 */
export type StampVerdict = 'fresh' | 'replayed' | 'stale' | 'full';

/**
 * The session's requests for batch work that have already arrived. They are only in memory, so a request that was
 * signed before this object was created counts as stale.
 */
export class BatchReplayGuard {
  readonly #now: () => number;
  readonly #memory: ReplayMemory;
  readonly #since: number;

  constructor(now: () => number, max = REMEMBERED_MAX) {
    this.#now = now;
    this.#since = now();
    this.#memory = new ReplayMemory(now, max);
  }

  take({ at, nonce }: BatchStamp): StampVerdict {
    const now = this.#now();
    if (this.#memory.has(nonce)) return 'replayed';
    if (at < this.#since || Math.abs(at - now) > BATCH_SKEW_MS) return 'stale';
    return this.#memory.take(nonce, at + BATCH_SKEW_MS + 1) ? 'fresh' : 'full';
  }
}
