import { LIFECYCLE } from '../../shared/lattice/node.ts';
import { Book } from '../../shared/metrics/book.ts';
import { exposition } from '../../shared/metrics/exposition.ts';
import type { EngineLoad } from '../../shared/routing/load.ts';
import type { AgentStatus } from '../host/control-protocol.ts';
import type { Mesh } from '../mesh/mesh.ts';
import * as families from './families.ts';

/** What a page is made of: `otela-agent status`, and what is counted beside it. */
interface AgentFigures {
  status: AgentStatus;
  /** Undefined while no engine answers. */
  load: EngineLoad | undefined;
  mesh: Pick<Mesh, 'view' | 'sent'> | undefined;
  /** Requests of other agents and of the own ingress. */
  meshInFlight: number;
  /** Bytes, and microseconds of the processor. */
  process: { rss: number; cpuUs: number };
}

/** The agent in Prometheus' text format. Reads what is there; costs the sessions that it knows. */
export function agentPage({ status, load, mesh, meshInFlight, process }: AgentFigures): string {
  const book = new Book();
  for (const state of LIFECYCLE) book.set(families.STATE, [state], Number(state === status.state));
  book.set(families.START, [], seconds(status.started_at));
  if (status.job?.ends_at !== undefined) book.set(families.JOB_END, [], seconds(status.job.ends_at));
  book.set(families.ENGINE, [], Number(status.engine?.answering ?? false));
  if (load !== undefined) {
    book.set(families.ENGINE_REQUESTS, ['running'], load.running);
    book.set(families.ENGINE_REQUESTS, ['waiting'], load.waiting);
    if (load.kvUse !== undefined) book.set(families.KV_USE, [], load.kvUse);
  }
  for (const { state } of status.models) book.count(families.MODELS, [state]);
  for (const { url, connected } of status.gateways) book.set(families.TUNNEL, [new URL(url).host], Number(connected));
  const ofGateways = status.gateways.reduce((sum, { in_flight }) => sum + in_flight, 0);
  book.set(families.IN_FLIGHT, ['gateway'], ofGateways);
  book.set(families.IN_FLIGHT, ['mesh'], meshInFlight);
  if (status.ingress !== undefined) {
    book.set(families.USAGE, [], status.ingress.usage_waiting);
    book.count(families.POLICY_FAULTS, [], status.ingress.policy_faults);
  }
  if (mesh !== undefined) addMesh(book, mesh, status.mesh?.channels ?? 0);
  book.set(families.RSS, [], process.rss);
  book.count(families.CPU, [], process.cpuUs / 1e6);
  return exposition(families.AGENT_FAMILIES, book);
}

function addMesh(book: Book, mesh: Pick<Mesh, 'view' | 'sent'>, channels: number): void {
  book.set(families.CHANNELS, [], channels);
  for (const { entry, liveness } of mesh.view())
    if (entry.state !== 'LEFT') book.count(families.KNOWN, [entry.state, liveness]);
  book.count(families.GOSSIP_MESSAGES, [], mesh.sent.messages);
  book.count(families.GOSSIP_BYTES, [], mesh.sent.bytes);
}

function seconds(rfc3339: string): number {
  return Date.parse(rfc3339) / 1000;
}
