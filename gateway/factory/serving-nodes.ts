/**
 * Lists the nodes of an autoscaler's provider, and nodes with its deployments, so that the autoscaler can match them to
 * its jobs.
 */
import { DEPLOYMENT_LABEL } from '../../shared/deployment/deployment-labels.ts';
import {
  CONTEXT_LABEL,
  FACTORY_LABEL,
  FUNCTIONS_LABEL,
  JOB_LABEL,
  jobNamePrefix,
  NODES_MAX,
  type ServingNode,
} from '../../shared/factory/factory-exchange.ts';
import type { RegistryEntry } from '../../shared/lattice/node-record.ts';
import type { NodeIndex } from '../../shared/routing/node-index.ts';
import type { FactoryIdentity } from './factory-reports.ts';

/** The labels that an autoscaler's job gives its agent. Other labels are omitted, because they could be megabytes. */
const LABELS = [FACTORY_LABEL, CONTEXT_LABEL, JOB_LABEL, DEPLOYMENT_LABEL];

/** When each session last had work; milliseconds since the epoch. At most one entry per session of the registry. */
export class BusyTimes {
  readonly #at = new Map<string, number>();

  /** Must be called more often than a load expires (LOAD_KNOWN_MS), so that no load is missed. */
  observe(nodes: Pick<NodeIndex, 'entries' | 'live'>, batchNodes: ReadonlySet<string>, now: number): void {
    const here = new Set<string>();
    for (const { session } of nodes.entries()) {
      here.add(session);
      const load = nodes.live.loadOf(session);
      const before = this.#at.get(session);
      // An idle tunnel reports no load. So even a new load with no running request shows that a request ran a moment
      // ago.
      if (before === undefined || batchNodes.has(session) || runs(load)) this.#at.set(session, now);
      else if (load !== undefined) this.#at.set(session, Math.max(before, Math.min(load.at, now)));
    }
    for (const session of this.#at.keys()) if (!here.has(session)) this.#at.delete(session);
  }

  idleMs(session: string, now: number): number {
    return Math.max(0, now - (this.#at.get(session) ?? now));
  }
}

type Load = ReturnType<NodeIndex['live']['loadOf']>;

function runs(load: Load): boolean {
  return load !== undefined && load.running + load.waiting > 0;
}

/**
 * Returns the nodes. Nodes of the autoscaler's jobs and deployments come first, because it considers a job lost if the
 * list does not contain the job's node. `models`: the models of the autoscaler's report; the first of them that a node
 * serves counts as the node's model.
 */
export function servingNodes(
  nodes: Pick<NodeIndex, 'entries' | 'live'>,
  { provider, factory }: Pick<FactoryIdentity, 'provider' | 'factory'>,
  models: ReadonlySet<string>,
  busy: BusyTimes,
  now: number,
): ServingNode[] {
  const prefix = jobNamePrefix(factory);
  // An autoscaler may order deployments on nodes of any provider.
  const isDeployed = ({ labels }: RegistryEntry) => labels[DEPLOYMENT_LABEL]?.startsWith(prefix) === true;
  const isOwn = (entry: RegistryEntry) => isDeployed(entry) || entry.labels[FACTORY_LABEL] === factory;
  const listed = [...nodes.entries()].filter(
    (entry) => entry.state !== 'LEFT' && (entry.provider === provider || isDeployed(entry)),
  );
  const ownFirst = [...listed.filter(isOwn), ...listed.filter((entry) => !isOwn(entry))];
  return ownFirst.slice(0, NODES_MAX).map((entry) => {
    const { session, cluster, job, labels } = entry;
    const load = nodes.live.loadOf(session);
    const model = (entry.models.find(({ id }) => models.has(id)) ?? entry.models[0])?.id;
    const own = LABELS.flatMap((name) => {
      const value = labels[name];
      return value === undefined ? [] : [[name, value] as const];
    });
    return {
      session,
      cluster,
      ...(job !== undefined && { job: job.id }),
      ...(model !== undefined && { model }),
      state: stateOf(entry),
      in_flight: load === undefined ? 0 : load.running + load.waiting,
      idle_ms: busy.idleMs(session, now),
      ...(own.length > 0 && { labels: Object.fromEntries(own) }),
    };
  });
}

function stateOf({ state, leaving, models, labels }: RegistryEntry): ServingNode['state'] {
  if (state === 'DOWN' || leaving !== undefined) return 'draining';
  // A node without an engine stays in this state. It runs functions as soon as it has joined.
  if (state === 'JOIN' && labels[FUNCTIONS_LABEL] === 'on') return 'ready';
  if (state === 'SERVING') return models.some((model) => model.state === 'ready') ? 'ready' : 'loading';
  return models.length === 0 ? 'joining' : 'loading';
}

/**
 * Returns the ready replicas of one model. `busy`: their utilization from 0 to 1, computed from their engines' queues
 * and caches.
 */
export function replicasOf(
  nodes: Pick<NodeIndex, 'model' | 'live'>,
  model: string,
): { ready: number; inFlight: number; busy: number } {
  const ready = (nodes.model(model)?.ready ?? []).filter(({ leaving }) => leaving === undefined);
  let inFlight = 0;
  let busy = 0;
  for (const { session } of ready) {
    const load = nodes.live.loadOf(session);
    if (load === undefined) continue;
    inFlight += load.running + load.waiting;
    busy += load.waiting > 0 ? 1 : Math.min(1, load.kvUse ?? 0);
  }
  return { ready: ready.length, inFlight, busy: ready.length === 0 ? 0 : busy / ready.length };
}
