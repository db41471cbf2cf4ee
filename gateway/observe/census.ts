import type { Book } from '../../shared/metrics/book.ts';
import type { Census } from '../registry/views/census.ts';
import {
  AGENT_VERSIONS,
  BREAKERS,
  CERTIFICATE_END,
  DELEGATES,
  DEPARTURES,
  DOUBLES,
  ENGINE_REQUESTS,
  FROZEN,
  MODEL_ALWAYS_ON,
  MODEL_NODES,
  MODEL_SUNSET,
  NODES,
  REGISTRY_EVENTS,
  STREAMS,
  SUSPECTED,
  TUNNELS,
} from './families.ts';

export function addCensus(
  book: Book,
  { states, suspected, tunnels, breakers, load, models, versions, sunsets, alwaysOn, counters }: Census,
): void {
  for (const [state, n] of Object.entries(states)) book.set(NODES, [state], n);
  book.set(SUSPECTED, [], suspected);
  book.set(TUNNELS, [], tunnels);
  for (const { model, ...standings } of models)
    for (const [state, n] of Object.entries(standings)) book.set(MODEL_NODES, [model, state], n);
  for (const [state, n] of Object.entries(breakers)) book.set(BREAKERS, [state], n);
  for (const [version, n] of Object.entries(versions)) book.set(AGENT_VERSIONS, [version], n);
  for (const [model, seconds] of Object.entries(sunsets)) book.set(MODEL_SUNSET, [model], seconds);
  for (const model of alwaysOn) book.set(MODEL_ALWAYS_ON, [model], 1);
  book.set(ENGINE_REQUESTS, ['running'], load.running);
  book.set(ENGINE_REQUESTS, ['waiting'], load.waiting);
  book.set(STREAMS, [], load.open);
  book.set(DOUBLES, [], counters.doubles);
  book.set(DELEGATES, [], counters.delegates);
  for (const [cause, n] of Object.entries(counters.departures)) book.set(DEPARTURES, [cause], n);
  book.set(FROZEN, [], counters.frozen.length);
  book.set(CERTIFICATE_END, [], counters.certificateEnds);
  for (const kind of ['snapshots', 'words', 'messages', 'alarms', 'probes'] as const)
    book.set(REGISTRY_EVENTS, [kind], counters[kind]);
}
