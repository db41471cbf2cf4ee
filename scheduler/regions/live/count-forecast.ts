/** Forecasts the requests of the next slot from those of previous slots. */
export interface OnlineForecast {
  observe(count: number): void;
  next(): number;
}

/** Weight of the newest slot in exponential smoothing, as in the simulator. */
const WEIGHT = 0.3;
/**
 * Bounds of a forecast, as multiples of the recent level. Because of them, even a forecast that is wrong by a factor of
 * ten neither stops busy regions nor starts all regions.
 */
const [TRUST_LEAST, TRUST_MOST] = [0.7, 3];

export class CountForecast implements OnlineForecast {
  readonly #inner: OnlineForecast | undefined;
  #level = 0;
  #seen = 0;

  /** `inner`: the forecaster that is bounded; undefined: only exponential smoothing. */
  constructor(inner?: OnlineForecast) {
    this.#inner = inner;
  }

  observe(count: number): void {
    if (!Number.isFinite(count) || count < 0) return;
    const weight = Math.max(WEIGHT, 1 / ++this.#seen);
    this.#level = (1 - weight) * this.#level + weight * count;
    this.#inner?.observe(count);
  }

  next(): number {
    const given = this.#inner?.next() ?? this.#level;
    if (!Number.isFinite(given)) return this.#level;
    return Math.min(TRUST_MOST * this.#level, Math.max(TRUST_LEAST * this.#level, given));
  }
}
