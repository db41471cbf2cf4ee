import { type MetricState, MetricStore } from '../../shared/metrics/metric-store.ts';
import type { Env } from '../env.ts';
import type { RequestTimeline } from './request-timeline.ts';

/** Name of the gateway's only observe object. */
export const OBSERVE_NAME = 'observe';

/** Counts are collected for this time into one report. */
const REPORT_DELAY_MS = 1_000;
/**
 * If a report is not sent within this time, another request sends it, because the runtime drops the timer of a canceled
 * request.
 */
const REPORT_STUCK_MS = 3_000;

/** What one source counted since its last report. */
export interface MetricsReport {
  /** Random id of the source: one isolate or object. `sequence` numbers its reports. */
  source: string;
  sequence: number;
  counts: MetricState;
  /** Current values, which replace those of the source's previous report. */
  gauges: MetricState;
  /** Timelines of finished requests. */
  stories?: readonly RequestTimeline[];
}

/** Maximum timelines that wait for a report. Further ones are dropped. */
const TIMELINES_MAX = 1_000;

interface Context {
  waitUntil(work: Promise<unknown>): void;
}

/**
 * Counts in memory, and reports to the observe object once a second while there is something to report. No request
 * waits for a report. A source that dies loses the counts of its last second.
 */
export class MetricsReporter {
  readonly counts = new MetricStore();
  readonly #gauges: (now: MetricStore) => void;
  #timelines: RequestTimeline[] = [];
  /** Created with the first report, because a Worker has no randomness before its first request. */
  #source = '';
  #sequence = 0;
  #reportingSince = Number.NEGATIVE_INFINITY;
  /** A report that may not have arrived. It is sent again unchanged, so that it counts once. */
  #unconfirmed: MetricsReport | undefined;

  /** @param gauges called for each report; writes the current values */
  constructor(gauges: (now: MetricStore) => void = () => {}) {
    this.#gauges = gauges;
  }

  /**
   * Schedules a report after a count. Must not be called for a request whose client disconnected: the runtime would
   * wait for the report before it ends the request's work, so an engine would run for another second. The next count
   * sends the report.
   */
  touch(env: Env, ctx: Context, now: number): void {
    if (now - this.#reportingSince < REPORT_STUCK_MS) return;
    this.#reportingSince = now;
    ctx.waitUntil(this.#report(env));
  }

  /** Adds a timeline to the next report. */
  report(timeline: RequestTimeline): void {
    if (this.#timelines.length < TIMELINES_MAX) this.#timelines.push(timeline);
  }

  async #report(env: Env): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, REPORT_DELAY_MS));
    this.#reportingSince = Number.NEGATIVE_INFINITY;
    await this.#send(env, this.#unconfirmed ?? this.#next());
  }

  /** Reports all counts now. */
  async flush(env: Env): Promise<void> {
    if (this.#unconfirmed !== undefined) await this.#send(env, this.#unconfirmed);
    if (this.#unconfirmed === undefined) await this.#send(env, this.#next());
  }

  #next(): MetricsReport {
    if (this.#source === '') this.#source = crypto.randomUUID();
    const now = new MetricStore();
    this.#gauges(now);
    const timelines = this.#timelines;
    this.#timelines = [];
    const counts = this.counts.take();
    return { source: this.#source, sequence: ++this.#sequence, counts, gauges: now.state(), stories: timelines };
  }

  async #send(env: Env, report: MetricsReport): Promise<void> {
    this.#unconfirmed = report;
    try {
      await env.OBSERVE.getByName(OBSERVE_NAME).add(report);
      if (this.#unconfirmed === report) this.#unconfirmed = undefined;
    } catch {
      // The observe object did not answer, for example because it restarts. The next count sends the report again.
    }
  }
}
