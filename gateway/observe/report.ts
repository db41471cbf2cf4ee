import { type MetricState, MetricStore } from '../../shared/metrics/metric-store.ts';
import type { Env } from '../env.ts';
import type { RequestTimeline } from './request-timeline.ts';

/** There is one object that counts per gateway. */
export const OBSERVE_NAME = 'observe';

/** Counts wait so long to travel together. */
const TOGETHER_MS = 1_000;
/** A request that was cancelled may take its timer along: another one reports then. */
const STUCK_MS = 3_000;

/** What one place counted since its last report. */
export interface MetricsReport {
  /** Names the place while it lives; its reports are numbered. */
  source: string;
  sequence: number;
  counts: MetricState;
  /** As they stand there now: they replace those of the source's report before. */
  gauges: MetricState;
  /** Of requests that are over. */
  stories?: readonly RequestTimeline[];
}

/** Stories that wait for a report; of more, those that come later go untold. */
const STORIES_MAX = 1_000;

interface Context {
  waitUntil(work: Promise<unknown>): void;
}

/**
 * Counts in memory and tells the object that adds up, once a second while there is something to tell. Nothing on the way of a
 * request waits for it. A place that dies takes the counts of its last second along.
 */
export class MetricsReporter {
  readonly counts = new MetricStore();
  readonly #gauges: (now: MetricStore) => void;
  /** Not at start: a Worker has no randomness before its first request. */
  #timelines: RequestTimeline[] = [];
  #source = '';
  #sequence = 0;
  #reportingSince = Number.NEGATIVE_INFINITY;
  /** Not known to have arrived: sent again as it was, so that it counts once. */
  #unsure: MetricsReport | undefined;

  /** `gauges` writes down what is so at that moment, for each report. */
  constructor(gauges: (now: MetricStore) => void = () => {}) {
    this.#gauges = gauges;
  }

  /**
   * Something was counted. Not to be called for a client that left: its runtime would wait for the report before it ends what the
   * request was doing, and an engine would work on for a second. The next count tells of it.
   */
  touch(env: Env, ctx: Context, now: number): void {
    if (now - this.#reportingSince < STUCK_MS) return;
    this.#reportingSince = now;
    ctx.waitUntil(this.#report(env));
  }

  /** Travels with the next report. */
  tell(timeline: RequestTimeline): void {
    if (this.#timelines.length < STORIES_MAX) this.#timelines.push(timeline);
  }

  async #report(env: Env): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, TOGETHER_MS));
    this.#reportingSince = Number.NEGATIVE_INFINITY;
    await this.#send(env, this.#unsure ?? this.#next());
  }

  /** Tells all that was counted until now. */
  async flush(env: Env): Promise<void> {
    if (this.#unsure !== undefined) await this.#send(env, this.#unsure);
    if (this.#unsure === undefined) await this.#send(env, this.#next());
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
    this.#unsure = report;
    try {
      await env.OBSERVE.getByName(OBSERVE_NAME).add(report);
      if (this.#unsure === report) this.#unsure = undefined;
    } catch {
      // The object is moving: the next count tells it again.
    }
  }
}
