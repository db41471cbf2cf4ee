/**
 * Tokens that the engine generates per second, by its own counters: for all clients, streaming or not, and for any
 * number of tokens per event.
 */

import { metricPattern, metricValues, sum } from './prometheus-text.ts';

/** If two readings are further apart, there was a pause between them and the mean is meaningless. */
const PAUSE_MS = 5_000;
/** A shorter time is not exact, because an engine counts once per step. */
const INTERVAL_MIN_MS = 200;

/**
 * vLLM's counter grows with every step. SGLang's grows by whole responses, but SGLang has a gauge of the rate in its
 * last steps.
 */
const WRITTEN = metricPattern('vllm:generation_tokens_total', 'lmdeploy:generation_tokens_total');
const PER_SECOND = metricPattern('sglang:gen_throughput');

export class TokenRate {
  #last: { written: number; at: number } | undefined;
  #rate: number | undefined;

  /**
   * `metrics`: Prometheus text of the engine at `at` (milliseconds of a monotonic clock). Undefined: not known (yet).
   */
  observe(metrics: string, at: number): number | undefined {
    const gauge = total(metrics, PER_SECOND);
    if (gauge !== undefined) return gauge;
    const written = total(metrics, WRITTEN);
    const last = this.#last;
    if (written !== undefined && last !== undefined && written >= last.written && at - last.at < INTERVAL_MIN_MS)
      return this.#rate;
    this.#last = written === undefined ? undefined : { written, at };
    // After a restart the engine's counters begin at 0.
    const follows = written !== undefined && last !== undefined && written >= last.written && at - last.at <= PAUSE_MS;
    this.#rate = follows ? ((written - last.written) * 1000) / (at - last.at) : undefined;
    return this.#rate;
  }
}

/** Sum over all engines behind one port. */
function total(text: string, pattern: RegExp): number | undefined {
  const found = metricValues(text, pattern);
  return found.length === 0 ? undefined : sum(found);
}
