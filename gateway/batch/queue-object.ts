import { type Contender, nextBatch } from '../../shared/batch/share.ts';
import { GatewayObject } from '../gateway-object.ts';

/** Batches that want nodes of one model. */
const CONTENDERS_MAX = 10_000;
/** Nodes that wait for a batch at once. */
const WAITING_MAX = 4_096;

/**
 * Which batches want nodes of one model. In memory: each batch says so every few seconds while it has open lines, and what it does not
 * repeat is forgotten.
 */
export class BatchQueueObject extends GatewayObject {
  readonly #contenders = new Map<string, { contender: Contender; until: number }>();
  readonly #waiting = new Set<() => void>();

  offer(contender: Contender, until: number): void {
    if (!this.#contenders.has(contender.id) && this.#contenders.size >= CONTENDERS_MAX) return;
    this.#contenders.set(contender.id, { contender, until });
    if (contender.waiting === 0) return;
    for (const wake of this.#waiting) wake();
  }

  /** @param skip batches that had nothing for this node just now */
  next(skip: readonly string[]): string | null {
    const now = this.ctx.clock.now();
    for (const [id, { until }] of this.#contenders) if (until <= now) this.#contenders.delete(id);
    const left = [...this.#contenders.values()]
      .map(({ contender }) => contender)
      .filter(({ id }) => !skip.includes(id));
    // A batch without a waiting line may still have a late chunk to run a second time.
    const found = nextBatch(left, now) ?? left.find(({ leased }) => leased > 0);
    return found?.id ?? null;
  }

  /** What a lease took, until the batch says it itself. */
  leased(id: string, lines: number): void {
    const entry = this.#contenders.get(id);
    if (entry === undefined) return;
    const { contender } = entry;
    const waiting = Math.max(0, contender.waiting - lines);
    entry.contender = { ...contender, waiting, leased: contender.leased + lines };
  }

  /** Resolves when a batch offers lines, or after `ms`. */
  wait(ms: number): Promise<void> {
    if (this.#waiting.size >= WAITING_MAX) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        this.#waiting.delete(done);
        cancel();
        resolve();
      };
      const cancel = this.ctx.clock.after(ms, done);
      this.#waiting.add(done);
    });
  }
}
