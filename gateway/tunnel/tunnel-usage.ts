import type { UsageRecord } from '../../shared/usage/usage-record.ts';
import type { Env } from '../env.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import { createIngressUsageTable } from '../usage/outbox/ingress-usage-table.ts';
import { UsageOutbox } from '../usage/outbox/usage-outbox.ts';
import { countPendingUsage, createUsageTable, newestUsage } from '../usage/outbox/usage-record-table.ts';
import { type UsageBatch, UsageWriteBuffer } from '../usage/outbox/usage-write-buffer.ts';
import { UsageAnomalies, type UsageAnomaly } from '../usage/usage-anomalies.ts';
import type { TunnelAttempts } from './tunnel-attempts.ts';

interface TunnelUsageOptions {
  session: string;
  ctx: ObjectContext;
  env: Env;
  attempts: TunnelAttempts;
  /** Called when the records of these streams are stored, so that the agent may forget them. */
  onStored(streams: readonly number[]): void;
}

/** The usage of requests at one node: from finished attempts to storage, and then to limits and reports. */
export class TunnelUsage {
  readonly outbox: UsageOutbox;
  readonly anomalies: UsageAnomalies;
  /** The node's provider, as its last socket reported it. */
  provider = '';
  readonly #options: TunnelUsageOptions;
  readonly #store: UsageWriteBuffer;

  constructor(options: TunnelUsageOptions) {
    const { session, ctx, env } = options;
    this.#options = options;
    createUsageTable(ctx.storage.sql);
    createIngressUsageTable(ctx.storage.sql);
    this.outbox = new UsageOutbox(ctx, env, session);
    this.anomalies = new UsageAnomalies(session, env, ctx);
    this.#store = new UsageWriteBuffer({
      sql: ctx.storage.sql,
      health: ctx.health,
      clock: ctx.clock,
      waitUntil: (work) => ctx.waitUntil(work),
      stored: (batch, expired) => this.#onStored(batch, expired),
    });
  }

  /** Number of records that have not been forwarded yet. */
  get waiting(): number {
    return countPendingUsage(this.#options.ctx.storage.sql) + this.#store.waiting;
  }

  newest(limit: number): UsageRecord[] {
    return newestUsage(this.#options.ctx.storage.sql, limit);
  }

  /**
   * Stores records. Called at each tick, or when there are enough records for one statement. Records do not wait
   * longer, because they would leave the garbage collector's young generation, here and at the agent, and then cost
   * more to free.
   */
  store(now: number): void {
    const { attempts, ctx } = this.#options;
    const { provider } = this;
    const { records, streams } = attempts.takeUsage(now);
    this.anomalies.add(attempts.takeAnomalies(), provider, now);
    if (records.length > 0) {
      const current = records.filter(({ expiresAt }) => expiresAt === undefined);
      ctx.waitUntil(this.outbox.reportToLimits(current).catch(() => {}));
    }
    if (records.length + streams.length > 0) this.#store.store({ records, streams, provider });
  }

  #onStored({ records, streams, provider }: UsageBatch, expired: number): void {
    this.anomalies.add(new Array<UsageAnomaly>(expired).fill('expired'), provider, Date.now());
    if (records.length > 0) this.outbox.schedule();
    if (streams.length > 0) this.#options.onStored(streams);
  }
}
