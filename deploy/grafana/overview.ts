/**
 * The Grafana dashboard of a gateway and its agents, made with Grafana's own builder, whose types are the schema. `npm
 * run dashboard:generate` writes otela.json in this folder; a test runs every expression against Prometheus. The builder
 * has no release after 0.0; only this file uses it, and users get otela.json.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as grafana from '@grafana/grafana-foundation-sdk/dashboard';
import { AnnotationQueryBuilder } from '@grafana/grafana-foundation-sdk/dashboard';
import { DataqueryBuilder } from '@grafana/grafana-foundation-sdk/prometheus';
import * as stat from '@grafana/grafana-foundation-sdk/stat';
import * as timeseries from '@grafana/grafana-foundation-sdk/timeseries';

const SOURCE = { type: 'prometheus', uid: `\${datasource}` };
/** Widths of panels; a row of Grafana has 24 columns. */
const WIDTH = { stat: 4, graph: 8 };
const HEIGHT = { stat: 4, graph: 8 };
/** The gateways that the reader selected. */
const GATEWAY = 'job="otela-gateway",instance=~"$instance"';
const MODEL = `${GATEWAY},gen_ai_request_model=~"$model"`;

interface Query {
  expr: string;
  legend?: string;
}

const queryOf = ({ expr, legend = '' }: Query, index: number) =>
  new DataqueryBuilder()
    .expr(expr)
    .legendFormat(legend)
    .refId(String.fromCharCode(65 + index))
    .datasource(SOURCE);

function graph(title: string, unit: string, ...queries: Query[]) {
  const panel = new timeseries.PanelBuilder()
    .title(title)
    .unit(unit)
    .min(0)
    .datasource(SOURCE)
    .span(WIDTH.graph)
    .height(HEIGHT.graph);
  return panel.targets(queries.map(queryOf));
}

function figure(title: string, unit: string, expr: string) {
  const panel = new stat.PanelBuilder().title(title).unit(unit).datasource(SOURCE);
  return panel.span(WIDTH.stat).height(HEIGHT.stat).withTarget(queryOf({ expr }, 0));
}

const quantile = (q: number, metric: string, by: string, labels: string) =>
  `histogram_quantile(${q}, sum by (le, ${by}) (rate(${metric}_bucket{${labels}}[$__rate_interval])))`;
const rateBy = (by: string, metric: string, labels: string) =>
  `sum by (${by}) (rate(${metric}{${labels}}[$__rate_interval]))`;

const chosen = (name: string, label: string, query: string) =>
  new grafana.QueryVariableBuilder(name)
    .label(label)
    .query(query)
    .datasource(SOURCE)
    .refresh(grafana.VariableRefresh.OnTimeRangeChanged)
    .sort(grafana.VariableSort.AlphabeticalAsc)
    .multi(true)
    .includeAll(true)
    .allValue('.*')
    .current({ text: 'All', value: '$__all' });

type Panel = ReturnType<typeof graph> | ReturnType<typeof figure>;

const ROWS: readonly (readonly [title: string, panels: readonly Panel[]])[] = [
  [
    'Now',
    [
      figure('Gateways up', 'none', 'sum(up{job="otela-gateway",instance=~"$instance"})'),
      figure('Nodes serving', 'none', `max(otela_registry_nodes{${GATEWAY},state="SERVING"})`),
      figure('Nodes suspected', 'none', `max(otela_registry_suspected_nodes{${GATEWAY}})`),
      figure('Requests in flight', 'none', `sum(otela_requests_in_flight{${GATEWAY}})`),
      figure('Requests per second', 'reqps', `sum(rate(otela_requests_total{${GATEWAY}}[$__rate_interval]))`),
      figure(
        'Answered 5xx',
        'percentunit',
        `sum(rate(otela_requests_total{${GATEWAY},status=~"5.."}[$__rate_interval])) / sum(rate(otela_requests_total{${GATEWAY}}[$__rate_interval]))`,
      ),
    ],
  ],
  [
    'Requests',
    [
      graph('Requests by status', 'reqps', {
        expr: rateBy('status', 'otela_requests_total', GATEWAY),
        legend: '{{status}}',
      }),
      graph('Errors by code', 'reqps', {
        expr: rateBy('error', 'otela_requests_total', `${GATEWAY},error!=""`),
        legend: '{{error}}',
      }),
      graph('Requests by model', 'reqps', {
        expr: rateBy('gen_ai_request_model', 'gen_ai_server_request_duration_seconds_count', MODEL),
        legend: '{{gen_ai_request_model}}',
      }),
      graph('Attempts by outcome', 'ops', {
        expr: rateBy('outcome', 'otela_attempts_total', MODEL),
        legend: '{{outcome}}',
      }),
      graph(
        'Broken responses',
        'ops',
        { expr: rateBy('reason', 'otela_streams_broken_total', GATEWAY), legend: 'broken: {{reason}}' },
        { expr: rateBy('outcome', 'otela_streams_continued_total', GATEWAY), legend: 'continued: {{outcome}}' },
      ),
      graph(
        'Refused by limits, and disconnected clients',
        'reqps',
        { expr: rateBy('error', 'otela_rate_limited_total', GATEWAY), legend: '{{error}}' },
        { expr: `sum(rate(otela_clients_left_total{${GATEWAY}}[$__rate_interval]))`, legend: 'client disconnected' },
      ),
    ],
  ],
  [
    'Models',
    [
      graph('Time to first token, 95th percentile', 's', {
        expr: quantile(0.95, 'gen_ai_server_time_to_first_token_seconds', 'gen_ai_request_model', MODEL),
        legend: '{{gen_ai_request_model}}',
      }),
      graph('Time per output token, median', 's', {
        expr: quantile(0.5, 'gen_ai_server_time_per_output_token_seconds', 'gen_ai_request_model', MODEL),
        legend: '{{gen_ai_request_model}}',
      }),
      graph('Request duration, 95th percentile', 's', {
        expr: quantile(0.95, 'gen_ai_server_request_duration_seconds', 'gen_ai_request_model', MODEL),
        legend: '{{gen_ai_request_model}}',
      }),
      graph('Tokens per second', 'none', {
        expr: rateBy('gen_ai_request_model, kind', 'otela_tokens_total', MODEL),
        legend: '{{gen_ai_request_model}} {{kind}}',
      }),
      graph('Output tokens per second by provider', 'none', {
        expr: rateBy('gen_ai_provider_name', 'gen_ai_client_token_usage_sum', `${MODEL},gen_ai_token_type="output"`),
        legend: '{{gen_ai_provider_name}}',
      }),
      graph('Nodes by model', 'none', {
        expr: `max by (gen_ai_request_model, state) (otela_model_nodes{${MODEL}})`,
        legend: '{{gen_ai_request_model}} {{state}}',
      }),
      graph('Requests that wait for a node', 'none', {
        expr: `sum by (gen_ai_request_model) (otela_queue_waiting{${MODEL}})`,
        legend: '{{gen_ai_request_model}}',
      }),
      graph('Wait for a node, 95th percentile', 's', {
        expr: quantile(0.95, 'otela_queue_wait_seconds', 'gen_ai_request_model', MODEL),
        legend: '{{gen_ai_request_model}}',
      }),
      graph('Requests in engines', 'none', {
        expr: `max by (state) (otela_engine_requests{${GATEWAY}})`,
        legend: '{{state}}',
      }),
    ],
  ],
  [
    'Nodes',
    [
      graph('Nodes by state', 'none', {
        expr: `max by (state) (otela_registry_nodes{${GATEWAY},state!="LEFT"})`,
        legend: '{{state}}',
      }),
      graph(
        'Unreachable nodes',
        'none',
        { expr: `max(otela_registry_suspected_nodes{${GATEWAY}})`, legend: 'suspected' },
        { expr: `max(otela_frozen_clusters{${GATEWAY}})`, legend: 'frozen clusters' },
        { expr: `max by (state) (otela_breakers{${GATEWAY},state!="closed"})`, legend: 'breaker {{state}}' },
      ),
      graph('Open tunnels', 'none', { expr: `otela_tunnels_open{${GATEWAY}}`, legend: '{{instance}}' }),
      graph('KV cache in use, by agent', 'percentunit', {
        expr: 'otela_agent_engine_kv_use_ratio{job="otela-agent"}',
        legend: '{{instance}}',
      }),
      graph('Requests in engines, by agent', 'none', {
        expr: 'sum by (instance, state) (otela_agent_engine_requests{job="otela-agent"})',
        legend: '{{instance}} {{state}}',
      }),
      graph('GPUs in use, by agent', 'percentunit', {
        expr: 'avg by (instance) (otela_agent_gpu_use_ratio{job="otela-agent"})',
        legend: '{{instance}}',
      }),
      graph('GPU power, by agent', 'watt', {
        expr: 'sum by (instance) (otela_agent_gpu_power_watts{job="otela-agent"})',
        legend: '{{instance}}',
      }),
      graph('Hottest GPU, by agent', 'celsius', {
        expr: 'max by (instance) (otela_agent_gpu_temperature_celsius{job="otela-agent"})',
        legend: '{{instance}}',
      }),
      graph("Agents' memory", 'bytes', {
        expr: 'otela_agent_resident_memory_bytes{job="otela-agent"}',
        legend: '{{instance}}',
      }),
    ],
  ],
  [
    'Database and processes',
    [
      graph(
        'Connections to PostgreSQL',
        'none',
        { expr: `sum by (instance, state) (otela_database_connections{${GATEWAY}})`, legend: '{{instance}} {{state}}' },
        { expr: `sum by (instance) (otela_database_waiting{${GATEWAY}})`, legend: '{{instance}} waiting' },
      ),
      graph('Since the last answer of PostgreSQL', 's', {
        expr: `otela_database_silence_seconds{${GATEWAY}}`,
        legend: '{{instance}}',
      }),
      graph('Slots of objects, by owner', 'none', { expr: `otela_gateway_slots{${GATEWAY}}`, legend: '{{instance}}' }),
      graph('Objects with changes that are not stored', 'none', {
        expr: `otela_objects_unstored{${GATEWAY}}`,
        legend: '{{instance}}',
      }),
    ],
  ],
  [
    'Batches and usage',
    [
      graph('Lines with a result per second', 'ops', {
        expr: rateBy('outcome', 'otela_batch_lines_total', GATEWAY),
        legend: '{{outcome}}',
      }),
      graph('Lines without a result', 'none', {
        expr: `sum by (state) (otela_batch_lines{${GATEWAY}})`,
        legend: '{{state}}',
      }),
      graph('Stored files', 'bytes', {
        expr: `max by (purpose) (otela_files_bytes{${GATEWAY}})`,
        legend: '{{purpose}}',
      }),
      graph('Usage records per second', 'ops', {
        expr: rateBy('certainty', 'otela_usage_records_total', GATEWAY),
        legend: '{{certainty}}',
      }),
      graph(
        'Usage records that wait',
        'none',
        { expr: `sum(otela_usage_records_held{${GATEWAY}})`, legend: 'held, storage fails' },
        { expr: `sum(otela_usage_outbox_waiting{${GATEWAY}})`, legend: 'at nodes' },
      ),
      graph('Refused usage reports per second', 'ops', {
        expr: rateBy('provider, reason', 'otela_usage_anomalies_total', GATEWAY),
        legend: '{{provider}} {{reason}}',
      }),
    ],
  ],
];

function overview(): grafana.Dashboard {
  const board = new grafana.DashboardBuilder('OpenTela')
    .uid('otela-overview')
    .description('Requests, models, nodes and batches of OpenTela gateways.')
    .tags(['opentela'])
    .time({ from: 'now-6h', to: 'now' })
    .refresh('30s')
    .timezone('browser')
    .tooltip(grafana.DashboardCursorSync.Crosshair)
    .withVariable(new grafana.DatasourceVariableBuilder('datasource').label('Data source').type('prometheus'))
    .withVariable(chosen('instance', 'Gateway', 'label_values(otela_requests_in_flight, instance)'))
    .withVariable(
      chosen('model', 'Model', 'label_values(gen_ai_server_request_duration_seconds_count, gen_ai_request_model)'),
    )
    .annotation(
      new AnnotationQueryBuilder()
        .name('Alerts')
        .datasource(SOURCE)
        .enable(true)
        .iconColor('red')
        .expr('ALERTS{alertname=~"Otela.*",alertstate="firing"}'),
    );
  for (const [title, panels] of ROWS) {
    board.withRow(new grafana.RowBuilder(title));
    for (const panel of panels) board.withPanel(panel);
  }
  return board.build();
}

/** The dashboard in Grafana's import format. */
export const overviewJson = (): string => `${JSON.stringify(overview(), null, 2)}\n`;

if (import.meta.main) writeFileSync(join(import.meta.dirname, 'otela.json'), overviewJson());
