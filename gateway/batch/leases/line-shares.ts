import type { LeaseLedger } from '../../../shared/batch/lease-ledger.ts';

/** A lease has at least the lines that a node runs in this time, because each lease costs requests. */
const LEAST_S = 1;
/** Interval at which the queue is asked for idle nodes while all lines are leased. */
const ASK_MS = 1_000;

/** Divides the lines of a function's batch among busy and idle nodes. */
export class LineShares {
  /** Idle nodes that could run lines of the batch, as the queue last said. */
  #idle = 0;
  #askedMs = Number.NEGATIVE_INFINITY;

  /** The queue says how many nodes are idle. */
  set(idle: number): void {
    this.#idle = idle;
  }

  /** A node got a lease. */
  granted(): void {
    this.#idle = Math.max(0, this.#idle - 1);
  }

  /** True if the queue should be asked now for idle nodes, which could take lines of other nodes. */
  isDue({ waiting, open }: LeaseLedger, nowMs: number): boolean {
    if (open === 0 || waiting > 0 || nowMs - this.#askedMs < ASK_MS) return false;
    this.#askedMs = nowMs;
    return true;
  }

  /** Maximum lines of a lease; infinite: no node is idle. @param linesPerS of all nodes together */
  most({ open, leases }: LeaseLedger, linesPerS: number): number {
    if (this.#idle === 0) return Number.POSITIVE_INFINITY;
    const least = (linesPerS / Math.max(1, leases.length)) * LEAST_S;
    return Math.max(1, Math.ceil(open / (leases.length + this.#idle)), Math.ceil(least));
  }

  /** The lines that each node keeps while others are idle and no line is free; undefined: all of them. */
  keep(ledger: LeaseLedger, linesPerS: number): number | undefined {
    return this.#idle === 0 || ledger.waiting > 0 ? undefined : this.most(ledger, linesPerS);
  }
}
