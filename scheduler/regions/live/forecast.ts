/** Requests of the next slot from those of the slots before. */
export interface Forecast {
  observe(count: number): void;
  next(): number;
}

/** Of exponential smoothing, as in the simulator. */
const WEIGHT = 0.3;
/** A forecast is believed within this range of what came lately: one that is ten times wrong neither puts busy regions to sleep nor wakes all. */
const [TRUST_LEAST, TRUST_MOST] = [0.7, 3];

export class CountForecast implements Forecast {
  readonly #inner: Forecast | undefined;
  #level = 0;
  #seen = 0;

  /** Absent: exponential smoothing alone. */
  constructor(inner?: Forecast) {
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
