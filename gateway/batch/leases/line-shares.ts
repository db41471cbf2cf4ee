import type { LeaseLedger } from '../../../shared/batch/lease-ledger.ts';

/** A lease has at least the lines that a node runs in this time, because each lease costs requests. */
const LEAST_S = 1;
/** Minimum time between two questions to the queue for idle nodes, and between two counts of the leased lines. */
const ASK_MS = 1_000;

/** Divides the lines of a function's batch among busy and idle nodes. */
export class LineShares {
  /** Idle nodes that could run lines of the batch, as the queue last said. */
  #idle = 0;
  #checkedMs = Number.NEGATIVE_INFINITY;

  /** The queue says how many nodes are idle. */
  set(idle: number): void {
    this.#idle = idle;
  }

  /** A node got a lease. */
  granted(): void {
    this.#idle = Math.max(0, this.#idle - 1);
  }

  /** True if the queue should be asked now for idle nodes, which could take lines of other nodes. */
  isDue(ledger: LeaseLedger, nowMs: number): boolean {
    // Each commit asks, and the ledger counts the lines of all chunks.
    if (nowMs - this.#checkedMs < ASK_MS) return false;
    this.#checkedMs = nowMs;
    return ledger.open > 0 && ledger.waiting === 0;
  }

  /**
   * Maximum lines of a lease. The node that asks is idle, too, even if the queue knows none: without this, the last
   * chunk would go to one node whole while the other nodes end their last lines.
   * @param linesPerS of all nodes together
   */
  most({ open, leases }: LeaseLedger, linesPerS: number): number {
    const least = (linesPerS / Math.max(1, leases.length)) * LEAST_S;
    return Math.max(1, Math.ceil(open / (leases.length + Math.max(1, this.#idle))), Math.ceil(least));
  }

  /** The lines that each node keeps while others are idle and no line is free; undefined: all of them. */
  keep(ledger: LeaseLedger, linesPerS: number): number | undefined {
    return this.#idle === 0 || ledger.waiting > 0 ? undefined : this.most(ledger, linesPerS);
  }
}
