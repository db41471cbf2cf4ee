/** Ratio of neighboring bounds, so that a percentile is off by at most 2.5 %. */
const FACTOR = 1.05;
/** Number of buckets, up to 10^12; no token count is higher. */
const BUCKETS = 1 + Math.ceil(Math.log(1e12) / Math.log(FACTOR));

interface HistogramState {
  count: number;
  sum: number;
  squares: number;
  /** Number of values per bucket, by the bucket's number. */
  buckets: Record<string, number>;
}

/** Counts values by size. Histograms can be added, and the sum still returns percentiles. */
export class Histogram {
  count = 0;
  #sum = 0;
  #squares = 0;
  readonly #buckets = new Map<number, number>();

  /** Adds a value. `times` −1 removes it again. */
  add(value: number, times = 1): void {
    this.count += times;
    this.#sum += times * value;
    this.#squares += times * value * value;
    const bucket = value < 1 ? 0 : Math.min(BUCKETS, 1 + Math.floor(Math.log(value) / Math.log(FACTOR) + 1e-9));
    this.#buckets.set(bucket, (this.#buckets.get(bucket) ?? 0) + times);
  }

  merge({ count, sum, squares, buckets }: HistogramState): void {
    this.count += count;
    this.#sum += sum;
    this.#squares += squares;
    for (const [name, n] of Object.entries(buckets)) {
      this.#buckets.set(Number(name), (this.#buckets.get(Number(name)) ?? 0) + n);
    }
  }

  get mean(): number {
    return this.count === 0 ? 0 : this.#sum / this.count;
  }

  get deviation(): number {
    if (this.count === 0) return 0;
    return Math.sqrt(Math.max(0, this.#squares / this.count - this.mean ** 2));
  }

  /** Returns the value that `part` of all values do not exceed. */
  percentile(part: number): number {
    let left = Math.ceil(part * this.count);
    for (const [bucket, n] of [...this.#buckets].sort(([a], [b]) => a - b)) {
      left -= n;
      if (left > 0) continue;
      return bucket === 0 ? 0 : Math.round(FACTOR ** (bucket - 1) * Math.sqrt(FACTOR));
    }
    return 0;
  }

  state(): HistogramState {
    return { count: this.count, sum: this.#sum, squares: this.#squares, buckets: Object.fromEntries(this.#buckets) };
  }
}
