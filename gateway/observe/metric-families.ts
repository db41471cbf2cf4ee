/**
 * Every metric of a gateway. `gen_ai_*` are OpenTelemetry's
 * (https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/), named as its Prometheus exporter names them;
 * their label for the provider names the provider of the node that answered. The metrics `otela_*` exist only here.
 * Label values come from small sets: the endpoint table, error codes, providers, and models that a node serves. A text
 * that an unauthenticated client can choose freely (an unknown model, a path) is never a label value.
 */
import type { Family, HistogramFamily } from '../../shared/metrics/metric-family.ts';
import { METRIC_OVERFLOW } from '../../shared/metrics/metric-store.ts';

/** Histogram bounds that OpenTelemetry recommends. */
const DURATION_S = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const FIRST_TOKEN_S = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const PER_TOKEN_S = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864];
/** Bounds for round trips between regions: from 1 ms within a building to halfway around the earth and back. */
const ROUND_TRIP_S = [0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5, 1];
/** Bounds for times of reasoning and of waits in queues, which can exceed OpenTelemetry's largest bound. */
const LONG_S = [0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600];

const counter = (name: string, help: string, ...labels: string[]): Family => ({ kind: 'counter', name, help, labels });
const gauge = (name: string, help: string, ...labels: string[]): Family => ({ kind: 'gauge', name, help, labels });
const histogram = (name: string, help: string, bounds: readonly number[], ...labels: string[]): HistogramFamily => ({
  kind: 'histogram',
  name,
  help,
  labels,
  bounds,
});

const GEN_AI = ['gen_ai_operation_name', 'gen_ai_provider_name', 'gen_ai_request_model'];

// --- counted by isolates, when requests end --------------------------------------------------------------------------

export const SERVER_DURATION = histogram(
  'gen_ai_server_request_duration_seconds',
  "Time of a client's request until the last byte of its response, including errors of the engine and the gateway.",
  DURATION_S,
  ...GEN_AI,
  'error_type',
);
export const REQUESTS = counter(
  'otela_requests_total',
  "Finished requests to /v1, by HTTP status and by the gateway's error code, if it has one.",
  'endpoint',
  'status',
  'error',
);
export const ATTEMPTS = counter(
  'otela_attempts_total',
  "Attempts at nodes, by the class of the engine's status, or the reason why there was none.",
  'gen_ai_request_model',
  'outcome',
);
export const REGION_ROUND_TRIP = histogram(
  'otela_region_round_trip_seconds',
  'Time from the start of an attempt to its acknowledgement by the agent, by region of the node.',
  ROUND_TRIP_S,
  'region',
);
export const REGION_SERVICE = histogram(
  'otela_region_service_seconds',
  'Time of the engine for one response, by region of the node.',
  DURATION_S,
  'region',
  'gen_ai_request_model',
);
export const RETRIES = counter(
  'otela_retries_total',
  'Retries, by the reason why the previous attempt failed.',
  'reason',
);
export const POLICY_FAULTS = counter(
  'otela_policy_faults_total',
  "Choices of an operator's policy (--policy) that threw, were slow, or named no candidate. The default policy chose instead.",
  'policy',
  'kind',
);
export const BROKEN_STREAMS = counter(
  'otela_streams_broken_total',
  'Responses that broke after their headers, by reason.',
  'reason',
);
export const CLIENTS_LEFT = counter(
  'otela_clients_left_total',
  'Clients that disconnected before their response was complete.',
);
export const SUSPICIONS = counter(
  'otela_suspicions_total',
  'Number of times that an isolate suspected a node because it did not respond.',
);
export const CONTINUED_STREAMS = counter(
  'otela_streams_continued_total',
  'Attempts to continue a broken stream on another node, by outcome.',
  'outcome',
);
export const RATE_LIMITED = counter(
  'otela_rate_limited_total',
  'Requests that the gateway refused with 429, by error code.',
  'error',
);
export const QUEUE_WAIT = histogram(
  'otela_queue_wait_seconds',
  'Time that requests wait for a free node, by outcome.',
  LONG_S,
  'gen_ai_request_model',
  'outcome',
);
export const METRICS_REPORTS = counter('otela_reports_total', 'Reports of isolates and objects to these metrics.');

// --- counted by batches and by the sweep of files -------------------------------------------------------------------------

export const BATCH_LINES = counter('otela_batch_lines_total', 'Lines of batches with a result, by outcome.', 'outcome');
export const BATCH_REQUEUED = counter(
  'otela_batch_lines_requeued_total',
  'Lines of batches that returned to the queue without a result because their node was lost.',
);
export const BATCH_WASTED = counter(
  'otela_batch_wasted_tokens_total',
  'Tokens of duplicate results, which were dropped.',
);
export const BATCH_LINES_NOW = gauge(
  'otela_batch_lines',
  'Lines of batches without a result, by state: running on a node, or waiting for a node.',
  'state',
);
export const OPEN_BATCHES = gauge('otela_batches', 'Batches that have not ended, by status.', 'status');
export const FILES_STORED = gauge(
  'otela_files',
  'Stored files of /v1/files by purpose, counted every 10 minutes.',
  'purpose',
);
export const FILES_BYTES = gauge(
  'otela_files_bytes',
  'Bytes of stored files by purpose, counted every 10 minutes.',
  'purpose',
);

/** Gauges, which are summed over all isolates. */
export const REQUESTS_IN_FLIGHT = gauge('otela_requests_in_flight', 'Running requests to /v1.');
export const QUEUE_WAITING = gauge(
  'otela_queue_waiting',
  'Requests that wait for a free node.',
  'gen_ai_request_model',
);

// --- counted when usage records arrive ---

export const CLIENT_DURATION = histogram(
  'gen_ai_client_operation_duration_seconds',
  'Time of one attempt at an engine, from its start to its end.',
  DURATION_S,
  ...GEN_AI,
  'error_type',
);
export const TOKEN_USAGE = histogram(
  'gen_ai_client_token_usage',
  'Tokens of one attempt, by kind.',
  TOKENS,
  ...GEN_AI,
  'gen_ai_token_type',
);
export const TIME_TO_FIRST_TOKEN = histogram(
  'gen_ai_server_time_to_first_token_seconds',
  'Time from the start of an attempt to the first data of its stream.',
  FIRST_TOKEN_S,
  ...GEN_AI,
);
export const TIME_PER_OUTPUT_TOKEN = histogram(
  'gen_ai_server_time_per_output_token_seconds',
  'Time per token after the first token, for complete streams.',
  PER_TOKEN_S,
  ...GEN_AI,
);
export const TOKENS_BY_KIND = counter(
  'otela_tokens_total',
  'Tokens by kind, including cached tokens and reasoning tokens.',
  'gen_ai_request_model',
  'kind',
);
export const USAGE_RECORDS = counter(
  'otela_usage_records_total',
  'Usage records, by certainty: exact, estimated, or of requests that no engine received.',
  'certainty',
);
export const RECORD_DELAY = histogram(
  'otela_usage_delay_seconds',
  'Time from the creation of a usage record until it is stored.',
  LONG_S,
);
export const USAGE_ANOMALIES = counter(
  'otela_usage_anomalies_total',
  'Usage reports of nodes that were refused, or counted with an upper bound, by provider and reason.',
  'provider',
  'reason',
);
export const STORAGE_FAILING = gauge('otela_storage_failing', '1 while the storage cannot be written, otherwise 0.');
export const USAGE_HELD = gauge(
  'otela_usage_records_held',
  'Usage records that wait in memory while the storage cannot be written.',
);
export const USAGE_LOST = counter(
  'otela_usage_records_lost_total',
  'Usage records that were lost because the storage could not be written for too long.',
);
export const USAGE_OUTBOX_WAITING = gauge(
  'otela_usage_outbox_waiting',
  'Usage records that nodes could not deliver at their last try.',
);

// --- read from the registry object at each scrape ---

export const REGISTRY_NODES = gauge('otela_registry_nodes', 'Sessions in the registry, by state.', 'state');
export const SUSPECTED_NODES = gauge(
  'otela_registry_suspected_nodes',
  'Sessions that are not LEFT and are suspected, so that they get no requests.',
);
export const MODEL_NODES = gauge(
  'otela_model_nodes',
  'Sessions by model and state: ready for requests, suspected, or loading.',
  'gen_ai_request_model',
  'state',
);
export const MODEL_REPLICA_VALUES = gauge(
  'otela_model_replica_values',
  'Number of different values that ready replicas of a model publish, if they differ.',
  'gen_ai_request_model',
  'fact',
);
export const TUNNELS = gauge('otela_tunnels_open', 'Agents with an open tunnel to this gateway.');
export const STREAMS_IN_FLIGHT = gauge(
  'otela_streams_in_flight',
  'Requests that run at nodes, from reports of the last seconds.',
);
export const ENGINE_REQUESTS = gauge(
  'otela_engine_requests',
  'Requests in engines by state (running or waiting), from reports of the last seconds.',
  'state',
);
export const BREAKERS = gauge('otela_breakers', 'Nodes that are not LEFT, by state of their circuit breaker.', 'state');
export const DOUBLES = counter(
  'otela_double_completions_total',
  'Requests that a second engine also completed, since the registry object started.',
);
export const DELEGATES = gauge('otela_gossip_delegates', 'Agents that gossip with this gateway.');
export const DEPARTURES = counter(
  'otela_node_departures_total',
  'Nodes that left since the registry object started, by cause.',
  'cause',
);
export const FROZEN_CLUSTERS = gauge('otela_frozen_clusters', 'Clusters for which evictions are suspended.');
export const CERTIFICATE_END = gauge(
  'otela_certificate_end_timestamp_seconds',
  "Time when the gateway's certificate expires.",
);
export const AGENT_VERSIONS = gauge(
  'otela_registry_agent_versions',
  'Sessions that are not LEFT, by version of the agent.',
  'agent_version',
);
export const MODEL_ALWAYS_ON = gauge(
  'otela_model_always_on',
  '1 for each model with always_on in the catalogue.',
  'gen_ai_request_model',
);
export const MODEL_SUNSET = gauge(
  'otela_model_sunset_timestamp_seconds',
  'Time when a model is retired, for models with sunset_at in the catalogue.',
  'gen_ai_request_model',
);
export const REGISTRY_EVENTS = counter(
  'otela_registry_events_total',
  'Events of the registry object since it started, by kind.',
  'kind',
);

// --- known to the gateway itself -------------------------------------------------------------------------------------------

export const CLOCK_TIMESTAMP = gauge('otela_clock_timestamp_seconds', 'Time of the gateway’s clock at this scrape.');
export const TLS_CERTIFICATE_END = gauge(
  'otela_tls_certificate_end_timestamp_seconds',
  "Time when the gateway's TLS certificate expires; absent if TLS ends at another program.",
);

// --- with --database; the last four only with several processes ----------------------------------------------------------

export const DATABASE_CONNECTIONS = gauge(
  'otela_database_connections',
  'Open connections to PostgreSQL, by use and state (busy or idle).',
  'pool',
  'state',
);
export const DATABASE_WAITING = gauge(
  'otela_database_waiting',
  'Statements that wait for a connection to PostgreSQL, by use.',
  'pool',
);
export const DATABASE_SILENCE = gauge(
  'otela_database_silence_seconds',
  'Time since PostgreSQL answered a heartbeat of this process, which sends one every 2 s.',
);
export const GATEWAY_PROCESSES = gauge('otela_gateway_processes', 'Processes that share the database and run.');
export const GATEWAY_SLOTS = gauge(
  'otela_gateway_slots',
  'Slots of objects that this process owns. All processes together own 256.',
);
export const OBJECTS_UNSTORED = gauge(
  'otela_objects_unstored',
  'Objects of this process with changes that PostgreSQL does not have yet.',
);

/** All families in the order of the /metrics page. */
export const FAMILIES: readonly Family[] = [
  SERVER_DURATION,
  CLIENT_DURATION,
  TIME_TO_FIRST_TOKEN,
  TIME_PER_OUTPUT_TOKEN,
  TOKEN_USAGE,
  REQUESTS,
  REQUESTS_IN_FLIGHT,
  ATTEMPTS,
  REGION_ROUND_TRIP,
  REGION_SERVICE,
  RETRIES,
  POLICY_FAULTS,
  BROKEN_STREAMS,
  CONTINUED_STREAMS,
  CLIENTS_LEFT,
  SUSPICIONS,
  RATE_LIMITED,
  QUEUE_WAITING,
  QUEUE_WAIT,
  TOKENS_BY_KIND,
  USAGE_RECORDS,
  RECORD_DELAY,
  USAGE_ANOMALIES,
  STORAGE_FAILING,
  USAGE_HELD,
  USAGE_LOST,
  USAGE_OUTBOX_WAITING,
  REGISTRY_NODES,
  SUSPECTED_NODES,
  MODEL_NODES,
  MODEL_REPLICA_VALUES,
  TUNNELS,
  STREAMS_IN_FLIGHT,
  ENGINE_REQUESTS,
  BREAKERS,
  DOUBLES,
  DELEGATES,
  DEPARTURES,
  FROZEN_CLUSTERS,
  CERTIFICATE_END,
  TLS_CERTIFICATE_END,
  CLOCK_TIMESTAMP,
  AGENT_VERSIONS,
  MODEL_ALWAYS_ON,
  MODEL_SUNSET,
  REGISTRY_EVENTS,
  METRICS_REPORTS,
  METRIC_OVERFLOW,
  BATCH_LINES,
  BATCH_REQUEUED,
  BATCH_WASTED,
  BATCH_LINES_NOW,
  OPEN_BATCHES,
  FILES_STORED,
  FILES_BYTES,
  DATABASE_CONNECTIONS,
  DATABASE_WAITING,
  DATABASE_SILENCE,
  GATEWAY_PROCESSES,
  GATEWAY_SLOTS,
  OBJECTS_UNSTORED,
];
