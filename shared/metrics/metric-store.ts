import type { Family, HistogramFamily } from './metric-family.ts';

/**
 * Maximum number of series per family: a thousand models with ten combinations of the other labels. Values of further
 * series are counted in the series OTHER, so that a client cannot fill the memory, and in METRIC_OVERFLOW.
 */
export const SERIES_MAX = 10_000;
/** The label value of the series under which further series are counted. */
export const OTHER = '_other';
/** Every store may count this, so each table of families must list it. */
export const METRIC_OVERFLOW: Family = {
  kind: 'counter',
  name: 'otela_metrics_overflow_total',
  help: `Values that were counted with the labels \`${OTHER}\`, because their metric had its maximum of ${SERIES_MAX} series.`,
  labels: ['metric'],
};
/** Maximum length of a label's value, in characters. */
const VALUE_MAX = 128;

/** Separates the label values in a series' key; no value contains it. */
const SEPARATOR = '\u001f';

/**
 * The value of a counter or gauge. For a histogram: the counts of its buckets, with the infinite bucket last, and then
 * the sum of the observed values.
 */
type Value = number | number[];

/**
 * The content of a store as plain data, which isolates send to objects and objects write to disk. Families are keyed by
 * name, and series by the values of their labels.
 */
export type MetricState = Record<string, Sample[]>;

interface Sample {
  key: string;
  value: Value;
}

/**
 * Counters by family and labels. An isolate keeps them until they are reported; an object keeps them permanently. One
 * count costs a string and two look-ups, which is cheap enough for every request.
 */
export class MetricStore {
  readonly #families = new Map<string, Map<string, Value>>();

  get empty(): boolean {
    return this.#families.size === 0;
  }

  count(family: Family, labels: readonly string[], by = 1): void {
    if (by <= 0) return;
    const series = this.#series(family.name);
    const key = this.#keyFor(family, series, labels);
    const known = series.get(key);
    series.set(key, (typeof known === 'number' ? known : 0) + by);
  }

  /** Sets the current value of a gauge. */
  set(family: Family, labels: readonly string[], value: number): void {
    const series = this.#series(family.name);
    series.set(this.#keyFor(family, series, labels), value);
  }

  observe(family: HistogramFamily, labels: readonly string[], value: number): void {
    if (!Number.isFinite(value) || value < 0) return;
    const { bounds } = family;
    const series = this.#series(family.name);
    const key = this.#keyFor(family, series, labels);
    let known = series.get(key);
    if (!Array.isArray(known)) {
      known = new Array<number>(bounds.length + 2).fill(0);
      series.set(key, known);
    }
    let bucket = 0;
    while (bucket < bounds.length && value > (bounds[bucket] ?? 0)) bucket++;
    known[bucket] = (known[bucket] ?? 0) + 1;
    known[bounds.length + 1] = (known[bounds.length + 1] ?? 0) + value;
  }

  #series(name: string): Map<string, Value> {
    let series = this.#families.get(name);
    if (series === undefined) {
      series = new Map();
      this.#families.set(name, series);
    }
    return series;
  }

  #keyFor({ name }: Family, series: ReadonlyMap<string, Value>, labels: readonly string[]): string {
    const key = labels.length === 1 ? labelValue(labels[0] ?? '') : labels.map(labelValue).join(SEPARATOR);
    return this.#keyWithin(name, series, key);
  }

  /** Returns the key, or that of the series OTHER if the family has its maximum of series. */
  #keyWithin(name: string, series: ReadonlyMap<string, Value>, key: string): string {
    if (series.has(key) || series.size < SERIES_MAX) return key;
    const other = key.split(SEPARATOR).fill(OTHER).join(SEPARATOR);
    // If the key is already that of OTHER, the store that sends this value has counted the overflow.
    if (key !== other) this.count(METRIC_OVERFLOW, [name]);
    return other;
  }

  /**
   * Adds the counts of another store. If a histogram there has different buckets, because it comes from another
   * version, the histogram starts again.
   */
  merge(state: MetricState): void {
    for (const [name, samples] of Object.entries(state)) {
      const series = this.#series(name);
      for (const { key: given, value } of samples) {
        const key = this.#keyWithin(name, series, given);
        series.set(key, sum(series.get(key), value));
      }
    }
  }

  /** Returns everything and empties the store. */
  take(): MetricState {
    const state = this.state();
    this.#families.clear();
    return state;
  }

  state(): MetricState {
    const state: MetricState = {};
    for (const [name, series] of this.#families) {
      state[name] = Array.from(series, ([key, value]) => ({ key, value }));
    }
    return state;
  }

  /** The samples of a family: the values of the labels, and the counted value. */
  *samples({ name }: Family): Generator<{ labels: string[]; value: Value }> {
    for (const [key, value] of this.#families.get(name) ?? []) yield { labels: key.split(SEPARATOR), value };
  }
}

function labelValue(text: string): string {
  const short = text.length > VALUE_MAX ? text.slice(0, VALUE_MAX) : text;
  return short.includes(SEPARATOR) ? short.replaceAll(SEPARATOR, '?') : short;
}

function sum(known: Value | undefined, more: Value): Value {
  if (typeof more === 'number') return typeof known === 'number' ? known + more : more;
  if (!Array.isArray(known) || known.length !== more.length) return [...more];
  return known.map((one, n) => one + (more[n] ?? 0));
}
