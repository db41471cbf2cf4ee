/** Tokens that the engine writes per second, as it counts them itself: of all clients, streamed or not, and whatever one event holds. */

import { metricPattern, metricValues, sum } from './metrics.ts';

/** Between two readings that are further apart lies a pause, and the mean says nothing about it. */
const PAUSE_MS = 5_000;
/** A shorter time says little: an engine counts once per step. */
const LEAST_MS = 200;

/** vLLM's counter grows with every step. SGLang's grows by whole answers, but there is a gauge of what its last steps made per second. */
const WRITTEN = metricPattern('vllm:generation_tokens_total', 'lmdeploy:generation_tokens_total');
const PER_SECOND = metricPattern('sglang:gen_throughput');

export class TokenRate {
  #last: { written: number; at: number } | undefined;
  #rate: number | undefined;

  /** `metrics`: Prometheus text of the engine at `at` (milliseconds of a clock that does not jump). Undefined: not known (yet). */
  observe(metrics: string, at: number): number | undefined {
    const gauge = total(metrics, PER_SECOND);
    if (gauge !== undefined) return gauge;
    const written = total(metrics, WRITTEN);
    const last = this.#last;
    if (written !== undefined && last !== undefined && written >= last.written && at - last.at < LEAST_MS)
      return this.#rate;
    this.#last = written === undefined ? undefined : { written, at };
    // An engine that was started again counts from nothing.
    const follows = written !== undefined && last !== undefined && written >= last.written && at - last.at <= PAUSE_MS;
    this.#rate = follows ? ((written - last.written) * 1000) / (at - last.at) : undefined;
    return this.#rate;
  }
}

/** Of all engines behind one port. */
function total(text: string, pattern: RegExp): number | undefined {
  const found = metricValues(text, pattern);
  return found.length === 0 ? undefined : sum(found);
}
