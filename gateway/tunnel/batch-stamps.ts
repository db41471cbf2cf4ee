import { BATCH_SKEW_MS, type BatchStamp } from '../../shared/batch/agent-request.ts';
import { ReplayMemory } from '../../shared/collections/replay-memory.ts';

/** Two minutes of 160 requests a second: a node asks for a chunk of work a few times a second. */
const REMEMBERED_MAX = 20_000;

/** `stale`: signed too long ago, too far ahead, or before this memory began: what came then it does not know. */
export type StampVerdict = 'fresh' | 'replayed' | 'stale' | 'full';

/** Which of a session's requests for work of batches came already. In memory: what is signed before it began counts as stale. */
export class BatchStamps {
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
