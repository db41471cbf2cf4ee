/**
 * The declaration of a metric. Each metric is declared once, in a table, so that its name, its labels and its
 * documentation agree.
 */

type Kind = 'counter' | 'gauge' | 'histogram';

export interface Family {
  readonly kind: Kind;
  /** The name follows Prometheus' conventions: `_total` for a counter, and the unit as a suffix. */
  readonly name: string;
  readonly help: string;
  /** Names of the labels. Each sample has one value per label, in this order. */
  readonly labels: readonly string[];
  /** Upper bounds of a histogram's buckets, ascending. The infinite bound is not listed. */
  readonly bounds?: readonly number[];
}

export interface HistogramFamily extends Family {
  readonly kind: 'histogram';
  readonly bounds: readonly number[];
}
