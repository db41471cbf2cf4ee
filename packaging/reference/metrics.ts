/** Every metric of gateway and agent, from the tables that their `/metrics` is made of. */
import { AGENT_FAMILIES } from '../../agent/observe/families.ts';
import { FAMILIES } from '../../gateway/observe/families.ts';
import type { Family } from '../../shared/metrics/family.ts';
import { code, table } from './table.ts';

export function metricsPage(): string {
  return [
    '# Metrics',
    'How to read them, and what the labels hold: [observability](../observability.md).',
    '## Of a gateway',
    metrics(FAMILIES),
    '## Of an agent',
    metrics(AGENT_FAMILIES),
  ].join('\n\n');
}

function metrics(families: readonly Family[]): string {
  const rows = families.map(({ name, kind, labels, help }) => [code(name), kind, labels.map(code).join(' '), help]);
  return table(['metric', 'type', 'labels', 'meaning'], rows);
}
