/**
 * Usage that nodes reported and that the gateway did not accept as reported. Operators see it as a metric and in the
 * log.
 */
import { isRecent } from '../../shared/timing/is-recent.ts';
import type { Env } from '../env.ts';
import { USAGE_ANOMALIES } from '../observe/metric-families.ts';
import { metricsReporter } from '../observe/request-log.ts';

/**
 * - `unproven`: a report of a request that this gateway did not open at this node
 * - `expired`: a report of a request that was opened too long ago to know whether it was already counted
 * - `over_bound`: more tokens than the request can have used; the bound was counted instead
 * - `backdated`, `future`: an agent's own record with a time outside the accepted range
 * - `foreign`: a record of a peer institution's usage from an agent of another institution
 */
export type UsageAnomaly = 'unproven' | 'expired' | 'over_bound' | 'backdated' | 'future' | 'foreign';

/** At most one log line per session in this time, so that a hostile node cannot fill the log. */
const LOG_EVERY_MS = 60_000;

interface Context {
  waitUntil(work: Promise<unknown>): void;
}

export class UsageAnomalies {
  readonly #session: string;
  readonly #env: Env;
  readonly #ctx: Context;
  /** Counts since the last log line. */
  readonly #unlogged = new Map<UsageAnomaly, number>();
  #loggedAt = Number.NEGATIVE_INFINITY;

  constructor(session: string, env: Env, ctx: Context) {
    this.#session = session;
    this.#env = env;
    this.#ctx = ctx;
  }

  add(anomalies: readonly UsageAnomaly[], provider: string, now: number): void {
    if (anomalies.length === 0) return;
    for (const anomaly of anomalies) {
      metricsReporter.counts.count(USAGE_ANOMALIES, [provider, anomaly]);
      this.#unlogged.set(anomaly, (this.#unlogged.get(anomaly) ?? 0) + 1);
    }
    metricsReporter.touch(this.#env, this.#ctx, now);
    if (isRecent(LOG_EVERY_MS, this.#loggedAt, now)) return;
    this.#loggedAt = now;
    const counts = [...this.#unlogged].map(([anomaly, times]) => `${times} ${anomaly}`).join(', ');
    this.#unlogged.clear();
    console.warn(`usage reports of node ${this.#session} (provider ${provider}) were corrected: ${counts}`);
  }
}
