import type { UsageRecord } from '../../../shared/usage/usage-record.ts';
import { USAGE_LOST } from '../../observe/metric-families.ts';
import { metricsReporter } from '../../observe/request-log.ts';
import type { Clock, Sql } from '../../platform/object-context.ts';
import { RETRY_MS, type StorageHealth } from '../../platform/storage/storage-health.ts';
import { storeUsage } from './usage-record-table.ts';

/** Records of one turn, and the streams that their agent may forget after they are stored. */
export interface UsageBatch {
  records: readonly UsageRecord[];
  streams: readonly number[];
  provider: string;
}

interface UsageStoreOptions {
  sql: Sql;
  health: StorageHealth;
  clock: Clock;
  /** Keeps the node's object in memory while records wait in it. */
  waitUntil(work: Promise<unknown>): void;
  /** Called when the batch is stored. `expired`: how many of its late records were refused. */
  stored(batch: UsageBatch, expired: number): void;
}

/**
 * Writes one node's records to its storage, or keeps them in memory while the storage cannot be written. Until the
 * records are written, the agent gets no acknowledgment. So it keeps its reports, and repeats them if the gateway was
 * killed.
 */
export class UsageWriteBuffer {
  readonly #options: UsageStoreOptions;
  /** Waiting batches, oldest first. Bounded by StorageHealth over all nodes. */
  #batches: UsageBatch[] = [];
  #retry: (() => void) | undefined;
  /** Resolves the promise that keeps the object in memory. */
  #emptied: (() => void) | undefined;

  constructor(options: UsageStoreOptions) {
    this.#options = options;
  }

  /** Number of records that wait. */
  get waiting(): number {
    return this.#batches.reduce((sum, { records }) => sum + records.length, 0);
  }

  store(batch: UsageBatch): void {
    if (this.#batches.length > 0 || !this.#write(batch)) this.#hold(batch);
  }

  #write(batch: UsageBatch): boolean {
    const { sql, health, clock, stored } = this.#options;
    let expired = 0;
    try {
      if (batch.records.length > 0) expired = storeUsage(sql, batch.records, batch.provider);
    } catch (error) {
      if (!health.failed(error, clock.now())) throw error;
      return false;
    }
    stored(batch, expired);
    return true;
  }

  #hold(batch: UsageBatch): void {
    const { health, clock } = this.#options;
    this.#batches.push(batch);
    let excess = health.hold(batch.records.length);
    while (excess > 0) {
      const oldest = this.#batches.shift();
      if (oldest === undefined) break;
      health.lose(oldest.records.length);
      metricsReporter.counts.count(USAGE_LOST, [], oldest.records.length);
      excess -= oldest.records.length;
    }
    this.#retry ??= clock.after(RETRY_MS, () => this.#catchUp());
    if (this.#emptied !== undefined) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#emptied = resolve;
    this.#options.waitUntil(promise);
  }

  #catchUp(): void {
    this.#retry = undefined;
    const { health, clock } = this.#options;
    for (let batch = this.#batches[0]; batch !== undefined; batch = this.#batches[0]) {
      if (!this.#write(batch)) {
        this.#retry = clock.after(RETRY_MS, () => this.#catchUp());
        return;
      }
      this.#batches.shift();
      health.release(batch.records.length);
    }
    this.#emptied?.();
    this.#emptied = undefined;
  }
}
