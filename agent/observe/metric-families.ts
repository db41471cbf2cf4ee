/**
 * All metrics of an agent. The session and the host are not labels, because a page is about one agent, and each short
 * job would add new series.
 */
import type { Family } from '../../shared/metrics/metric-family.ts';
import { METRIC_OVERFLOW } from '../../shared/metrics/metric-store.ts';

const counter = (name: string, help: string, ...labels: string[]): Family => ({ kind: 'counter', name, help, labels });
const gauge = (name: string, help: string, ...labels: string[]): Family => ({ kind: 'gauge', name, help, labels });

export const AGENT_STATE = gauge('otela_agent_state', '1 for the current state of the session.', 'state');
export const AGENT_START_TIME = gauge('otela_agent_start_timestamp_seconds', 'Time when the agent started.');
export const JOB_END = gauge('otela_agent_job_end_timestamp_seconds', 'Time when the job ends.');
export const ENGINE_ANSWERING = gauge('otela_agent_engine_answering', '1 while requests may be sent to the engine.');
export const AGENT_ENGINE_REQUESTS = gauge(
  'otela_agent_engine_requests',
  'Requests in the engine by state, from its last report and the requests since then.',
  'state',
);
export const KV_USE = gauge('otela_agent_engine_kv_use_ratio', "Share of the engine's KV cache that is in use.");
export const AGENT_MODELS = gauge('otela_agent_models', 'Models that the engine lists, by state.', 'state');
export const GPU_USE = gauge(
  'otela_agent_gpu_use_ratio',
  'Share of time in which the GPU ran a kernel. Drivers do not report it for MIG slices.',
  'gpu',
);
export const GPU_MEMORY_USED = gauge('otela_agent_gpu_memory_used_bytes', 'Used memory of the GPU.', 'gpu');
export const GPU_MEMORY = gauge('otela_agent_gpu_memory_bytes', 'Memory of the GPU.', 'gpu');
export const GPU_POWER = gauge(
  'otela_agent_gpu_power_watts',
  'Power that the GPU draws. Absent for MIG slices, which share it.',
  'gpu',
);
export const GPU_TEMPERATURE = gauge('otela_agent_gpu_temperature_celsius', 'Hottest sensor of the GPU.', 'gpu');
export const TUNNEL_CONNECTED = gauge(
  'otela_agent_tunnel_connected',
  '1 while the tunnel to this gateway is open.',
  'gateway',
);
export const AGENT_REQUESTS_IN_FLIGHT = gauge(
  'otela_agent_requests_in_flight',
  'Running requests, by their source.',
  'from',
);
export const MESH_CHANNELS = gauge('otela_agent_mesh_channels', 'Open channels to other agents.');
export const KNOWN_NODES = gauge(
  'otela_agent_known_nodes',
  'Sessions in the registry replica that are not LEFT.',
  'state',
  'liveness',
);
export const GOSSIP_MESSAGES = counter('otela_agent_gossip_messages_total', 'Gossip messages that the agent sent.');
export const GOSSIP_BYTES = counter(
  'otela_agent_gossip_bytes_total',
  'Bytes of the gossip messages that the agent sent.',
);
export const INGRESS_USAGE_WAITING = gauge(
  'otela_agent_usage_waiting',
  'Usage records of the ingress that no gateway has received yet.',
);
export const AGENT_POLICY_FAULTS = counter(
  'otela_agent_policy_faults_total',
  "Choices of the ingress's policy (--policy FILE) that threw, were slow, or named no candidate.",
);
export const AGENT_RESIDENT_BYTES = gauge('otela_agent_resident_memory_bytes', 'Resident memory of the agent process.');
export const AGENT_CPU_SECONDS = counter('otela_agent_cpu_seconds_total', 'CPU time of the agent process.');

/** All metrics, in the order of the page. */
export const AGENT_FAMILIES: readonly Family[] = [
  AGENT_STATE,
  AGENT_START_TIME,
  JOB_END,
  ENGINE_ANSWERING,
  AGENT_ENGINE_REQUESTS,
  KV_USE,
  AGENT_MODELS,
  GPU_USE,
  GPU_MEMORY_USED,
  GPU_MEMORY,
  GPU_POWER,
  GPU_TEMPERATURE,
  TUNNEL_CONNECTED,
  AGENT_REQUESTS_IN_FLIGHT,
  MESH_CHANNELS,
  KNOWN_NODES,
  GOSSIP_MESSAGES,
  GOSSIP_BYTES,
  INGRESS_USAGE_WAITING,
  AGENT_POLICY_FAULTS,
  METRIC_OVERFLOW,
  AGENT_RESIDENT_BYTES,
  AGENT_CPU_SECONDS,
];
