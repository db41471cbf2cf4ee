import { isTerminal } from '../../shared/batch/batch-status.ts';
import type { Env } from '../env.ts';
import {
  BATCH_LINES,
  BATCH_LINES_NOW,
  BATCH_REQUEUED,
  BATCH_WASTED,
  OPEN_BATCHES,
} from '../observe/metric-families.ts';
import { MetricsReporter } from '../observe/metrics-reporter.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import type { BatchRecord } from './batch-record.ts';

/** Counts the metrics of one batch, and reports them every few seconds as differences to the previous report. */
export class BatchMetrics {
  readonly #record: BatchRecord;
  readonly #reporter: MetricsReporter;
  #reported: Totals | undefined;

  constructor(record: BatchRecord) {
    this.#record = record;
    this.#reporter = new MetricsReporter((now) => {
      if (record.spec === undefined) return;
      const { status, counts } = record.state;
      if (isTerminal(status)) return;
      now.set(OPEN_BATCHES, [status], 1);
      if (counts.total === 0) return;
      const { waiting, leased } = record.ledger;
      now.set(BATCH_LINES_NOW, ['waiting'], waiting);
      now.set(BATCH_LINES_NOW, ['leased'], leased);
    });
  }

  /**
   * Called before each step. The first call after the object's start reads the stored counts, so that they are not
   * reported again.
   */
  begin(): void {
    this.#reported ??= this.#totals();
  }

  report(env: Env, ctx: Pick<ObjectContext, 'waitUntil'>, nowMs: number): void {
    const before = this.#reported ?? this.#totals();
    const now = this.#totals();
    const { counts } = this.#reporter;
    counts.count(BATCH_LINES, ['completed'], now.completed - before.completed);
    counts.count(BATCH_LINES, ['failed'], now.failed - before.failed);
    counts.count(BATCH_REQUEUED, [], now.requeued - before.requeued);
    counts.count(BATCH_WASTED, [], now.wasted - before.wasted);
    this.#reported = now;
    this.#reporter.touch(env, ctx, nowMs);
  }

  #totals(): Totals {
    const { counts, wastedTokens } = this.#record.state;
    return {
      completed: counts.completed,
      failed: counts.failed,
      requeued: this.#record.requeued,
      wasted: wastedTokens,
    };
  }
}

interface Totals {
  completed: number;
  failed: number;
  requeued: number;
  wasted: number;
}
