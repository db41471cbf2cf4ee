/**
 * What one model did in each minute: the base of its burstiness, and of the share of its output tokens over time. Pure.
 */

const MINUTES_PER_HOUR = 60;
const MINUTES_PER_DAY = 24 * MINUTES_PER_HOUR;
/** Maximum hours of a series: ten years. A line with a wrong date must not make an endless series. */
const HOURS_MAX = 87_840;

interface Minute {
  tokens: number;
  /** Requests with tokens, and the sum and the sum of squares of their shares of output tokens. */
  count: number;
  sum: number;
  squares: number;
}

/** Mean and standard deviation of the share of output tokens from a time on. */
export interface OutputShare {
  /** Minutes since the epoch. */
  minute: number;
  count: number;
  mean: number;
  deviation: number;
}

/** Minutes that all models of a trace may still remember together. */
export interface MinuteBudget {
  left: number;
}

export class ModelActivity {
  readonly #minutes = new Map<number, Minute>();
  readonly #budget: MinuteBudget;

  constructor(budget: MinuteBudget) {
    this.#budget = budget;
  }

  /**
   * Counts one request. Returns false if the trace is too long to remember its minute.
   *
   * @param minute minutes since the epoch
   */
  add(minute: number, input: number, output: number): boolean {
    const tokens = input + output;
    if (tokens === 0) return true;
    const known = this.#minutes.get(minute) ?? { tokens: 0, count: 0, sum: 0, squares: 0 };
    if (!this.#minutes.has(minute)) {
      if (this.#budget.left === 0) return false;
      this.#budget.left--;
      this.#minutes.set(minute, known);
    }
    const share = output / tokens;
    known.tokens += tokens;
    known.count++;
    known.sum += share;
    known.squares += share * share;
    return true;
  }

  /** Minutes with at least one token. A service without requests at night must not appear bursty. */
  get activeMinutes(): number {
    return this.#minutes.size;
  }

  /** Returns the tokens of the busiest minute over those of the mean active minute, and the deviation over the mean. */
  burstiness(): { peakToMean: number; deviationToMean: number; mean: number; peak: number } {
    let [sum, squares, peak] = [0, 0, 0];
    for (const { tokens } of this.#minutes.values()) {
      sum += tokens;
      squares += tokens * tokens;
      peak = Math.max(peak, tokens);
    }
    const mean = sum / Math.max(1, this.#minutes.size);
    if (mean === 0) return { peakToMean: 0, deviationToMean: 0, mean, peak };
    const variance = Math.max(0, squares / this.#minutes.size - mean * mean);
    return { peakToMean: peak / mean, deviationToMean: Math.sqrt(variance) / mean, mean, peak };
  }

  /** Returns for each hour since the first request its mean tokens per minute over those of the mean active minute. */
  burstinessByHour(): [hour: number, ratio: number][] {
    const { mean } = this.burstiness();
    const { first, last } = this.#span();
    if (mean === 0) return [];
    const hours = new Map<number, number>();
    for (const [minute, { tokens }] of this.#minutes) {
      const hour = Math.floor((minute - first) / MINUTES_PER_HOUR);
      hours.set(hour, (hours.get(hour) ?? 0) + tokens);
    }
    const count = Math.min(HOURS_MAX, Math.floor((last - first) / MINUTES_PER_HOUR) + 1);
    return Array.from({ length: count }, (_, hour) => {
      // The last hour may have fewer minutes.
      const minutes = Math.min(MINUTES_PER_HOUR, last - first + 1 - hour * MINUTES_PER_HOUR);
      return [hour, (hours.get(hour) ?? 0) / minutes / mean];
    });
  }

  /** Returns the share of output tokens per hour with requests, at most ten years of them. */
  outputShareByHour(): OutputShare[] {
    return this.#outputShare(MINUTES_PER_HOUR, () => true).slice(0, HOURS_MAX);
  }

  /** Returns the share of output tokens per minute of the day with the most requests. */
  outputShareOfBusiestDay(): OutputShare[] {
    const days = new Map<number, number>();
    for (const [minute, { count }] of this.#minutes) {
      const day = Math.floor(minute / MINUTES_PER_DAY);
      days.set(day, (days.get(day) ?? 0) + count);
    }
    let [busiest, most] = [0, -1];
    for (const [day, count] of days) if (count > most) [busiest, most] = [day, count];
    return this.#outputShare(1, (minute) => Math.floor(minute / MINUTES_PER_DAY) === busiest);
  }

  #outputShare(step: number, wanted: (minute: number) => boolean): OutputShare[] {
    const all = new Map<number, { count: number; sum: number; squares: number }>();
    for (const [minute, { count, sum, squares }] of this.#minutes) {
      if (!wanted(minute)) continue;
      const from = Math.floor(minute / step) * step;
      const known = all.get(from) ?? { count: 0, sum: 0, squares: 0 };
      all.set(from, { count: known.count + count, sum: known.sum + sum, squares: known.squares + squares });
    }
    return [...all]
      .sort(([a], [b]) => a - b)
      .map(([minute, { count, sum, squares }]) => {
        const mean = sum / count;
        return { minute, count, mean, deviation: Math.sqrt(Math.max(0, squares / count - mean * mean)) };
      });
  }

  #span(): { first: number; last: number } {
    let [first, last] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
    for (const minute of this.#minutes.keys()) {
      first = Math.min(first, minute);
      last = Math.max(last, minute);
    }
    return { first, last };
  }
}
