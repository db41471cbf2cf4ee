import type { Family } from '../../../shared/metrics/metric-family.ts';

/** https://prometheus.io/docs/concepts/data_model/ */
const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const LABEL = /^[a-zA-Z_][a-zA-Z0-9_]*$/;

/** The fault of a table of families, or undefined. */
export function flawOf(families: readonly Family[]): string | undefined {
  const seen = new Set<string>();
  for (const { kind, name, help, labels, bounds } of families) {
    if (!NAME.test(name) || seen.has(name)) return `${name}: no name, or used twice`;
    seen.add(name);
    if (kind === 'counter' && !name.endsWith('_total')) return `${name}: a counter ends in _total`;
    if (help === '' || !labels.every((label) => LABEL.test(label) && label !== 'le')) return `${name}: help or labels`;
    if ((kind === 'histogram') !== (bounds !== undefined)) return `${name}: bounds are for histograms`;
    if (bounds?.some((bound, n) => n > 0 && bound <= (bounds[n - 1] ?? 0))) return `${name}: bounds ascend`;
  }
  return undefined;
}
