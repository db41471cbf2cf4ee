/**
 * Every metric of a gateway. `gen_ai_*` are OpenTelemetry's
 * (https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/), named as its Prometheus exporter names them;
 * their provider is that of the node that answered. `otela_*` are this gateway's own. Label values come from small
 * sets: the endpoint table, error codes, providers, and models that a node serves. A text that an unauthenticated
 * client can choose freely (an unknown model, a path) is never a label value.
 */
import type { Family, HistogramFamily } from '../../shared/metrics/family.ts';

/** The bounds that OpenTelemetry recommends for each. */
const DURATION_S = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const FIRST_TOKEN_S = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const PER_TOKEN_S = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5];
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864];
/** Between regions: from 1 ms within a building to halfway around the earth and back. */
const ROUND_TRIP_S = [0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5, 1];
/** For reasoning and queues, which take longer than OpenTelemetry's buckets reach. */
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
  "A client's request to its last byte, engine's errors and ours included.",
  DURATION_S,
  ...GEN_AI,
  'error_type',
);
export const REQUESTS = counter(
  'otela_requests_total',
  'Requests to /v1 that are over, by the status they were answered with and our error code, if it was ours.',
  'endpoint',
  'status',
  'error',
);
export const ATTEMPTS = counter(
  'otela_attempts_total',
  "Attempts at nodes: by the class of the engine's status, or why none came.",
  'gen_ai_request_model',
  'outcome',
);
export const REGION_ROUND_TRIP = histogram(
  'otela_region_round_trip_seconds',
  'Opening of an attempt to its acknowledgement by the agent, by region of the node.',
  ROUND_TRIP_S,
  'region',
);
export const REGION_SERVICE = histogram(
  'otela_region_service_seconds',
  "An engine's time for one answer, by region of its node.",
  DURATION_S,
  'region',
  'gen_ai_request_model',
);
export const RETRIES = counter(
  'otela_retries_total',
  'Attempts after the first, by why the one before failed.',
  'reason',
);
export const POLICY_FAULTS = counter(
  'otela_policy_faults_total',
  "Choices of an operator's policy (--policy) that threw, were slow, or named no candidate: the default chose.",
  'policy',
  'kind',
);
export const BROKEN_STREAMS = counter(
  'otela_streams_broken_total',
  'Answers that broke off after their head, by why.',
  'reason',
);
export const CLIENTS_LEFT = counter('otela_clients_left_total', 'Clients that left before their answer was complete.');
export const SUSPICIONS = counter('otela_suspicions_total', 'Times that an isolate found a node silent.');
export const CONTINUED_STREAMS = counter(
  'otela_streams_continued_total',
  'Attempts to go on with a broken stream at another node, by outcome.',
  'outcome',
);
export const RATE_LIMITED = counter(
  'otela_rate_limited_total',
  'Requests refused with 429 by us, by error code.',
  'error',
);
export const QUEUE_WAIT = histogram(
  'otela_queue_wait_seconds',
  'Waits for a free node, by how they ended.',
  LONG_S,
  'gen_ai_request_model',
  'outcome',
);
export const METRICS_REPORTS = counter('otela_reports_total', 'Reports of isolates and objects to this page.');

// --- counted by batches and by the sweep of files -------------------------------------------------------------------------

export const BATCH_LINES = counter(
  'otela_batch_lines_total',
  'Lines of batches that have a result, by its kind.',
  'outcome',
);
export const BATCH_REQUEUED = counter(
  'otela_batch_lines_requeued_total',
  'Lines of batches that were leased and went back without a result, since their node was lost.',
);
export const BATCH_WASTED = counter(
  'otela_batch_wasted_tokens_total',
  'Tokens of results that came second, and were dropped.',
);
export const BATCH_LINES_NOW = gauge(
  'otela_batch_lines',
  'Lines of batches without a result: at nodes, or waiting for one.',
  'state',
);
export const OPEN_BATCHES = gauge('otela_batches', 'Batches that are not over, by status.', 'status');
export const FILES_STORED = gauge('otela_files', 'Stored files of /v1/files, counted every ten minutes.', 'purpose');
export const FILES_BYTES = gauge('otela_files_bytes', 'Their bytes.', 'purpose');

/** Current values, summed over all isolates. */
export const REQUESTS_IN_FLIGHT = gauge('otela_requests_in_flight', 'Requests to /v1 whose answer is not over.');
export const QUEUE_WAITING = gauge(
  'otela_queue_waiting',
  'Requests that wait for a free node.',
  'gen_ai_request_model',
);

// --- counted when usage records arrive
// ---------------------------------------------------------------------------------

export const CLIENT_DURATION = histogram(
  'gen_ai_client_operation_duration_seconds',
  'One attempt at an engine, from its opening to its end.',
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
  'From opening an attempt to the first data of its stream.',
  FIRST_TOKEN_S,
  ...GEN_AI,
);
export const TIME_PER_OUTPUT_TOKEN = histogram(
  'gen_ai_server_time_per_output_token_seconds',
  'Of streams that came to their end: time after the first token, per token after it.',
  PER_TOKEN_S,
  ...GEN_AI,
);
export const TOKENS_BY_KIND = counter(
  'otela_tokens_total',
  'Tokens, also those that engines took from a cache or spent on reasoning.',
  'gen_ai_request_model',
  'kind',
);
export const USAGE_RECORDS = counter(
  'otela_usage_records_total',
  'Records of use: exact, estimated, or of requests that no engine saw.',
  'certainty',
);
export const RECORD_DELAY = histogram(
  'otela_usage_delay_seconds',
  "From a record's making to its arrival in the books.",
  LONG_S,
);
export const USAGE_ANOMALIES = counter(
  'otela_usage_anomalies_total',
  'Usage that nodes reported and that was refused, or counted with its bound instead, by provider and reason.',
  'provider',
  'reason',
);
export const STORAGE_FAILING = gauge('otela_storage_failing', '1 while the storage cannot be written, else 0.');
export const USAGE_HELD = gauge(
  'otela_usage_records_held',
  'Records that wait in memory while the storage cannot be written.',
);
export const USAGE_LOST = counter(
  'otela_usage_records_lost_total',
  'Records that were given up because the storage could not be written for too long.',
);
export const USAGE_OUTBOX_WAITING = gauge(
  'otela_usage_outbox_waiting',
  'Records that nodes could not hand on when they last tried.',
);

// --- read from the registry object at each scrape
// ----------------------------------------------------------------------

export const REGISTRY_NODES = gauge('otela_registry_nodes', 'Sessions in the registry, by state.', 'state');
export const SUSPECTED_NODES = gauge(
  'otela_registry_suspected_nodes',
  'Sessions that are not LEFT and not routed to for now.',
);
export const MODEL_NODES = gauge(
  'otela_model_nodes',
  'Sessions by model: ready to be routed to, suspected, or loading.',
  'gen_ai_request_model',
  'state',
);
export const TUNNELS = gauge('otela_tunnels_open', 'Agents whose tunnel to this gateway is open.');
export const STREAMS_IN_FLIGHT = gauge(
  'otela_streams_in_flight',
  'Requests at nodes, as nodes told within the last seconds.',
);
export const ENGINE_REQUESTS = gauge(
  'otela_engine_requests',
  'What engines that were heard within the last seconds say: in their batches, and waiting for them.',
  'state',
);
export const BREAKERS = gauge(
  'otela_breakers',
  'Nodes that are not LEFT, by how their circuit breaker stands.',
  'state',
);
export const DOUBLES = counter(
  'otela_double_completions_total',
  'Requests that a second engine completed too, since the registry object woke.',
);
export const DELEGATES = gauge('otela_gossip_delegates', 'Agents that gossip with this gateway.');
export const DEPARTURES = counter(
  'otela_node_departures_total',
  'Nodes that left since the registry object woke, by cause.',
  'cause',
);
export const FROZEN_CLUSTERS = gauge('otela_frozen_clusters', 'Clusters whose nodes are not evicted for now.');
export const CERTIFICATE_END = gauge('otela_certificate_end_timestamp_seconds', "When the gateway's certificate ends.");
export const AGENT_VERSIONS = gauge(
  'otela_registry_agent_versions',
  'Sessions that are not LEFT, by the version of their agent.',
  'agent_version',
);
export const MODEL_ALWAYS_ON = gauge(
  'otela_model_always_on',
  '1 for each model that the catalogue keeps always on.',
  'gen_ai_request_model',
);
export const MODEL_SUNSET = gauge(
  'otela_model_sunset_timestamp_seconds',
  'When a model ends, of models that have an end in the catalogue.',
  'gen_ai_request_model',
);
export const REGISTRY_EVENTS = counter(
  'otela_registry_events_total',
  'What the registry object was asked or told since it woke, by kind.',
  'kind',
);

// --- known to the gateway itself -------------------------------------------------------------------------------------------

export const CLOCK_TIMESTAMP = gauge('otela_clock_timestamp_seconds', "The gateway's clock when it was asked.");
export const TLS_CERTIFICATE_END = gauge(
  'otela_tls_certificate_end_timestamp_seconds',
  'When the TLS certificate ends that this gateway shows; absent where something else ends TLS.',
);

/** In the order of the page. */
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
  BATCH_LINES,
  BATCH_REQUEUED,
  BATCH_WASTED,
  BATCH_LINES_NOW,
  OPEN_BATCHES,
  FILES_STORED,
  FILES_BYTES,
];
