/**
 * The number of tokens that the engine generates per second, from the engine's counters. The counters include all
 * clients, streaming or not, and any number of tokens per event.
 */

import { metricPattern, metricValues, sum } from './prometheus-text.ts';

/**
 * Maximum time between two readings. No rate is computed over a longer pause, because it would be a mean over time
 * without requests.
 */
const PAUSE_MS = 5_000;
/**
 * Minimum time between two readings. Over a shorter time the rate is inexact, because an engine counts once per step.
 */
const INTERVAL_MIN_MS = 200;

/**
 * Counters of generated tokens. vLLM's counter grows with every step. SGLang's counter grows only when a response ends,
 * so SGLang's gauge of its recent rate is used.
 */
const WRITTEN = metricPattern('vllm:generation_tokens_total', 'lmdeploy:generation_tokens_total');
const PER_SECOND = metricPattern('sglang:gen_throughput');

export class TokenRate {
  #last: { written: number; at: number } | undefined;
  #rate: number | undefined;

  /**
   * @param metrics Prometheus text of the engine
   * @param at time of the reading, in milliseconds of a monotonic clock
   * @returns tokens per second; undefined if not known (yet)
   */
  observe(metrics: string, at: number): number | undefined {
    const gauge = total(metrics, PER_SECOND);
    if (gauge !== undefined) return gauge;
    const written = total(metrics, WRITTEN);
    const last = this.#last;
    if (written !== undefined && last !== undefined && written >= last.written && at - last.at < INTERVAL_MIN_MS)
      return this.#rate;
    this.#last = written === undefined ? undefined : { written, at };
    // After a restart the engine's counters begin at 0, so a smaller value starts a new measurement.
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
