import type { GpuUse } from '../../shared/deployment/order-reply.ts';
import { SESSION_STATES } from '../../shared/lattice/node-record.ts';
import type { Family } from '../../shared/metrics/metric-family.ts';
import { MetricStore } from '../../shared/metrics/metric-store.ts';
import { exposition } from '../../shared/metrics/prometheus-exposition.ts';
import type { EngineLoad } from '../../shared/routing/node-load.ts';
import type { AgentStatus } from '../host/control-protocol.ts';
import type { Mesh } from '../mesh/mesh.ts';
import * as families from './metric-families.ts';

/** Input of a metrics page: the agent's status, and further counters. */
interface AgentFigures {
  status: AgentStatus;
  /** Undefined while no engine answers. */
  load: EngineLoad | undefined;
  mesh: Pick<Mesh, 'view' | 'sent'> | undefined;
  /** The last measurement of each GPU that this job may use. */
  gpus: readonly GpuUse[];
  /** Number of requests from other agents and from this agent's ingress. */
  meshInFlight: number;
  /** Memory in bytes, and processor time in microseconds. */
  process: { rss: number; cpuUs: number };
}

/**
 * The agent's metrics in Prometheus' text format. Only reads existing data. Its cost grows with the number of known
 * sessions.
 */
export function agentPage({ status, load, mesh, gpus, meshInFlight, process }: AgentFigures): string {
  const metrics = new MetricStore();
  for (const state of SESSION_STATES) metrics.set(families.AGENT_STATE, [state], Number(state === status.state));
  metrics.set(families.AGENT_START_TIME, [], seconds(status.started_at));
  if (status.job?.ends_at !== undefined) metrics.set(families.JOB_END, [], seconds(status.job.ends_at));
  metrics.set(families.ENGINE_ANSWERING, [], Number(status.engine?.answering ?? false));
  if (load !== undefined) {
    metrics.set(families.AGENT_ENGINE_REQUESTS, ['running'], load.running);
    metrics.set(families.AGENT_ENGINE_REQUESTS, ['waiting'], load.waiting);
    if (load.kvUse !== undefined) metrics.set(families.KV_USE, [], load.kvUse);
  }
  for (const { state } of status.models) metrics.count(families.AGENT_MODELS, [state]);
  addGpus(metrics, gpus);
  for (const { url, connected } of status.gateways)
    metrics.set(families.TUNNEL_CONNECTED, [new URL(url).host], Number(connected));
  const ofGateways = status.gateways.reduce((sum, { in_flight }) => sum + in_flight, 0);
  metrics.set(families.AGENT_REQUESTS_IN_FLIGHT, ['gateway'], ofGateways);
  metrics.set(families.AGENT_REQUESTS_IN_FLIGHT, ['mesh'], meshInFlight);
  if (status.ingress !== undefined) {
    metrics.set(families.INGRESS_USAGE_WAITING, [], status.ingress.usage_waiting);
    metrics.count(families.AGENT_POLICY_FAULTS, [], status.ingress.policy_faults);
  }
  if (mesh !== undefined) addMesh(metrics, mesh, status.mesh?.channels ?? 0);
  metrics.set(families.AGENT_RESIDENT_BYTES, [], process.rss);
  metrics.count(families.AGENT_CPU_SECONDS, [], process.cpuUs / 1e6);
  return exposition(families.AGENT_FAMILIES, metrics);
}

const MIB_BYTES = 1024 * 1024;

function addGpus(metrics: MetricStore, gpus: readonly GpuUse[]): void {
  for (const [index, gpu] of gpus.entries()) {
    const set = (family: Family, value: number | null | undefined) => {
      if (value !== null && value !== undefined) metrics.set(family, [String(index)], value);
    };
    const bytes = (mib: number | null) => (mib === null ? null : mib * MIB_BYTES);
    set(families.GPU_USE, gpu.use);
    set(families.GPU_MEMORY_USED, bytes(gpu.memory_used_mib));
    set(families.GPU_MEMORY, bytes(gpu.memory_total_mib));
    set(families.GPU_POWER, gpu.power_w);
    set(families.GPU_TEMPERATURE, gpu.temperature_c);
  }
}

function addMesh(metrics: MetricStore, mesh: Pick<Mesh, 'view' | 'sent'>, channels: number): void {
  metrics.set(families.MESH_CHANNELS, [], channels);
  for (const { entry, liveness } of mesh.view())
    if (entry.state !== 'LEFT') metrics.count(families.KNOWN_NODES, [entry.state, liveness]);
  metrics.count(families.GOSSIP_MESSAGES, [], mesh.sent.messages);
  metrics.count(families.GOSSIP_BYTES, [], mesh.sent.bytes);
}

function seconds(rfc3339: string): number {
  return Date.parse(rfc3339) / 1000;
}
