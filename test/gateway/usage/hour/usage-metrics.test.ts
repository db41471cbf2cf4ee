/** What a usage record adds to the figures of the page. */
import { env } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import { FAMILIES, USAGE_RECORDS } from '../../../../gateway/observe/metric-families.ts';
import { countUsageRow } from '../../../../gateway/usage/hour/usage-metrics.ts';
import { NO_SESSION } from '../../../../gateway/usage/usage-row.ts';
import { MetricStore } from '../../../../shared/metrics/metric-store.ts';
import { exposition } from '../../../../shared/metrics/prometheus-exposition.ts';
import { patience } from '../../../support/patience.ts';
import { knock } from '../../admin/support.ts';
import { usageRow } from '../../support/usage-row.ts';

const ROW = usageRow(1, { at: 0, completion: 11, cached: 4, reasoning: 0, firstMs: 250, totalMs: 1_250 });

test('a record of use tells the times and tokens of its attempt', () => {
  const book = new MetricStore();
  countUsageRow(book, ROW, 2_000);
  const text = exposition(FAMILIES, book);
  const of = 'gen_ai_operation_name="chat",gen_ai_provider_name="eth",gen_ai_request_model="m"';
  expect(text).toContain(`gen_ai_client_operation_duration_seconds_sum{${of},error_type=""} 1.25\n`);
  expect(text).toContain(`gen_ai_server_time_to_first_token_seconds_sum{${of}} 0.25\n`);
  expect(text).toContain(`gen_ai_server_time_per_output_token_seconds_sum{${of}} 0.1\n`);
  expect(text).toContain(`gen_ai_client_token_usage_sum{${of},gen_ai_token_type="input"} 10\n`);
  expect(text).toContain(`gen_ai_client_token_usage_sum{${of},gen_ai_token_type="output"} 11\n`);
  expect(text).toContain('otela_tokens_total{gen_ai_request_model="m",kind="cached"} 4\n');
  expect(text).toContain('otela_usage_delay_seconds_sum 2\n');
});

test('unchecked names are not labels: models that an ingress claims, and models of refused requests', () => {
  const book = new MetricStore();
  countUsageRow(book, { ...ROW, key: 'ingress:eth', model: 'made-up' }, 0);
  countUsageRow(book, { ...ROW, session: NO_SESSION, model: 'made-up', times: 7 }, 0);
  const text = exposition(FAMILIES, book);
  expect(text).not.toContain('made-up');
  expect(text).toContain(`${USAGE_RECORDS.name}{certainty="refused"} 7\n`);
});

test.each([
  ['503', { status: 503, complete: false }],
  ['client_left', { aborted: true, complete: false }],
  ['incomplete', { complete: false }],
  ['incomplete', { status: 0, complete: false }],
])('an attempt that went wrong is told as %s, and spoils no time per token', (error, more) => {
  const book = new MetricStore();
  countUsageRow(book, { ...ROW, ...more }, 0);
  const text = exposition(FAMILIES, book);
  expect(text).toContain(`error_type="${error}"`);
  expect(text).not.toContain('time_per_output_token');
});

const page = async () => (await knock('GET', '/metrics', { key: 'metrics-token-of-tests' })).text();

test('rows are counted where they are stored, each once', async () => {
  const row = usageRow(1, { at: Date.now(), estimated: true, model: 'counted-once' });
  const shard = env.USAGE.getByName('2026-11-20T10');
  await shard.add([row, row]);
  await shard.add([{ ...row, estimated: false }]);
  await shard.add([row]);
  const sum = /gen_ai_client_token_usage_sum\{[^}]*"counted-once",gen_ai_token_type="input"\} (\d+)\n/;
  await vi.waitFor(async () => expect(sum.exec(await page())?.[1]).toBe('10'), {
    timeout: patience(30_000),
    interval: 200,
  });
  expect(await page()).toContain(`${USAGE_RECORDS.name}{certainty="estimated"} 1\n`);
});
