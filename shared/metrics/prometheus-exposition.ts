/** Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format */

import type { Family } from './metric-family.ts';
import type { MetricStore } from './metric-store.ts';

export const CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/**
 * The text of all families that have samples, in the given order. A counter without labels is present even before its
 * first sample, with the value 0.
 */
export function exposition(families: readonly Family[], metrics: MetricStore): string {
  const lines: string[] = [];
  for (const family of families) {
    const samples = [...metrics.samples(family)];
    if (samples.length === 0 && family.kind === 'counter' && family.labels.length === 0)
      samples.push({ labels: [], value: 0 });
    if (samples.length === 0) continue;
    lines.push(`# HELP ${family.name} ${escapeHelp(family.help)}`, `# TYPE ${family.name} ${family.kind}`);
    for (const { labels: values, value } of samples) {
      const labels = family.labels.map((label, n) => `${label}="${escapeLabel(values[n] ?? '')}"`);
      if (typeof value === 'number') lines.push(`${family.name}${braced(labels)} ${value}`);
      else lines.push(...histogram(family, labels, value));
    }
  }
  return lines.length === 0 ? '' : `${lines.join('\n')}\n`;
}

/** Formats a histogram. Its buckets are cumulative, and the infinite bucket equals the count. */
function histogram({ name, bounds = [] }: Family, labels: readonly string[], value: readonly number[]): string[] {
  const lines: string[] = [];
  let count = 0;
  for (const [n, bound] of [...bounds, Number.POSITIVE_INFINITY].entries()) {
    count += value[n] ?? 0;
    const le = bound === Number.POSITIVE_INFINITY ? '+Inf' : String(bound);
    lines.push(`${name}_bucket${braced([...labels, `le="${le}"`])} ${count}`);
  }
  lines.push(
    `${name}_sum${braced(labels)} ${value[bounds.length + 1] ?? 0}`,
    `${name}_count${braced(labels)} ${count}`,
  );
  return lines;
}

function braced(labels: readonly string[]): string {
  return labels.length === 0 ? '' : `{${labels.join(',')}}`;
}

function escapeLabel(text: string): string {
  return /[\\"\n]/.test(text) ? text.replace(/[\\"\n]/g, (char) => (char === '\n' ? '\\n' : `\\${char}`)) : text;
}

function escapeHelp(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
}
