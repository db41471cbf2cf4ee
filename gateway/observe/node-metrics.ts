import type { MetricStore } from '../../shared/metrics/metric-store.ts';
import type { NodeCensus } from '../registry/views/node-census.ts';
import {
  AGENT_VERSIONS,
  BREAKERS,
  CERTIFICATE_END,
  DELEGATES,
  DEPARTURES,
  DOUBLES,
  ENGINE_REQUESTS,
  FROZEN_CLUSTERS,
  MODEL_ALWAYS_ON,
  MODEL_NODES,
  MODEL_REPLICA_VALUES,
  MODEL_SUNSET,
  REGISTRY_EVENTS,
  REGISTRY_NODES,
  STREAMS_IN_FLIGHT,
  SUSPECTED_NODES,
  TUNNELS,
} from './metric-families.ts';

export function addNodeMetrics(
  metrics: MetricStore,
  { states, suspected, tunnels, breakers, load, models, differing, versions, sunsets, alwaysOn, counters }: NodeCensus,
): void {
  for (const [state, n] of Object.entries(states)) metrics.set(REGISTRY_NODES, [state], n);
  metrics.set(SUSPECTED_NODES, [], suspected);
  metrics.set(TUNNELS, [], tunnels);
  for (const { model, ...standings } of models)
    for (const [state, n] of Object.entries(standings)) metrics.set(MODEL_NODES, [model, state], n);
  for (const { model, precision, context } of differing) {
    metrics.set(MODEL_REPLICA_VALUES, [model, 'precision'], precision);
    metrics.set(MODEL_REPLICA_VALUES, [model, 'context'], context);
  }
  for (const [state, n] of Object.entries(breakers)) metrics.set(BREAKERS, [state], n);
  for (const [version, n] of Object.entries(versions)) metrics.set(AGENT_VERSIONS, [version], n);
  for (const [model, seconds] of Object.entries(sunsets)) metrics.set(MODEL_SUNSET, [model], seconds);
  for (const model of alwaysOn) metrics.set(MODEL_ALWAYS_ON, [model], 1);
  metrics.set(ENGINE_REQUESTS, ['running'], load.running);
  metrics.set(ENGINE_REQUESTS, ['waiting'], load.waiting);
  metrics.set(STREAMS_IN_FLIGHT, [], load.open);
  metrics.set(DOUBLES, [], counters.doubles);
  metrics.set(DELEGATES, [], counters.delegates);
  for (const [cause, n] of Object.entries(counters.departures)) metrics.set(DEPARTURES, [cause], n);
  metrics.set(FROZEN_CLUSTERS, [], counters.frozen.length);
  metrics.set(CERTIFICATE_END, [], counters.certificateEnds);
  for (const kind of ['snapshots', 'words', 'messages', 'alarms', 'probes'] as const)
    metrics.set(REGISTRY_EVENTS, [kind], counters[kind]);
}
