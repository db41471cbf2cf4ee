import type { MetricStore } from '../../../shared/metrics/metric-store.ts';
import { endpointById } from '../../../shared/openai/endpoints.ts';
import { LEFT_ERROR } from '../../../shared/proxy/client-disconnect.ts';
import {
  CLIENT_DURATION,
  RECORD_DELAY,
  TIME_PER_OUTPUT_TOKEN,
  TIME_TO_FIRST_TOKEN,
  TOKEN_USAGE,
  TOKENS_BY_KIND,
  USAGE_RECORDS,
} from '../../observe/metric-families.ts';
import { operationLabel } from '../../observe/metric-labels.ts';
import { isReportedByAgent, NO_SESSION, type UsageRow } from '../usage-row.ts';

type CountedRow = Pick<
  UsageRow,
  | 'session'
  | 'times'
  | 'key'
  | 'at'
  | 'provider'
  | 'model'
  | 'endpoint'
  | 'streamed'
  | 'status'
  | 'prompt'
  | 'completion'
  | 'cached'
  | 'reasoning'
> &
  Pick<UsageRow, 'firstMs' | 'totalMs' | 'aborted' | 'estimated' | 'complete'>;

/**
 * Adds one attempt at an engine to the metrics. Called for each new row, but not for an exact row that replaces an
 * estimate.
 */
export function countUsageRow(metrics: MetricStore, row: CountedRow, now: number): void {
  if (row.session === NO_SESSION) return metrics.count(USAGE_RECORDS, ['refused'], row.times ?? 1);
  const { provider, firstMs, totalMs, completion } = row;
  // An agent, or a peer institution, could invent a model's name. Such a name must not become a label.
  const model = isReportedByAgent(row) ? '' : row.model;
  const labels = [operationLabel(endpointById(row.endpoint)), provider, model];
  metrics.count(USAGE_RECORDS, [row.estimated ? 'estimated' : 'exact']);
  metrics.observe(RECORD_DELAY, [], Math.max(0, now - row.at) / 1000);
  for (const kind of ['prompt', 'completion', 'cached', 'reasoning'] as const)
    metrics.count(TOKENS_BY_KIND, [model, kind], row[kind]);
  if (row.prompt > 0) metrics.observe(TOKEN_USAGE, [...labels, 'input'], row.prompt);
  if (completion > 0) metrics.observe(TOKEN_USAGE, [...labels, 'output'], completion);
  if (totalMs === null || totalMs <= 0) return; // the gateway was restarted and does not know the times
  metrics.observe(CLIENT_DURATION, [...labels, errorOf(row)], totalMs / 1000);
  if (!row.streamed || firstMs === null || firstMs <= 0 || (row.status ?? 0) >= 400) return;
  metrics.observe(TIME_TO_FIRST_TOKEN, labels, firstMs / 1000);
  if (row.complete && completion > 1)
    metrics.observe(TIME_PER_OUTPUT_TOKEN, labels, (totalMs - firstMs) / 1000 / (completion - 1));
}

/** Returns OpenTelemetry's `error.type`: the engine's status, or how the attempt ended; empty if nothing failed. */
function errorOf({ status, aborted, complete }: CountedRow): string {
  if (status !== null && status >= 400) return String(status);
  if (aborted) return LEFT_ERROR;
  return status === 0 || !complete ? 'incomplete' : '';
}
