/**
 * Launches jobs on idle agents, which are a cluster without a queue. A job is a deployment that is ordered through a
 * gateway. An agent runs one deployment on all its GPUs.
 */

import * as z from 'zod';
import type { ListedJob } from '../../node/batch-systems/batch-system.ts';
import { type GatewayClient, GatewayRefusalError } from '../../node/gateway-client.ts';
import { ACCEPTS_LABEL, DEPLOYMENT_LABEL, failedDeployment } from '../../shared/deployment/deployment-labels.ts';
import { offerSchema } from '../../shared/deployment/order-reply.ts';
import { bindParameters } from '../../shared/deployment/template-parameters.ts';
import { gpuClass } from '../../shared/hardware/gpu-classes.ts';
import type { ClusterConfig, PoolConfig } from '../config/schema.ts';
import { errorLine } from '../factory-error.ts';
import { type Launcher, LauncherError, type Submission } from './launcher.ts';

/**
 * Maximum number of nodes that are tried for one job. A node refuses if another operator has just given it a
 * deployment.
 */
const TRIES_MAX = 3;
/** After a node accepted an order, the registry may show it as idle for this long. */
const ORDER_VISIBLE_MS = 90_000;
const NODES_MAX = 100_000;
/**
 * An answer of the registry is reused for this long, because a round reads it for the jobs and again for the idle
 * nodes.
 */
const NODES_FRESH_MS = 1_000;

const nodesSchema = z.object({
  data: z
    .array(
      z.object({
        session: z.string().max(64),
        state: z.string().max(32),
        suspected: z.boolean(),
        cluster: z.string().max(256),
        labels: z.record(z.string(), z.string()).default({}),
        hardware: z.object({
          gpus: z.array(z.object({ class: z.string().max(64), count: z.number().int().positive().default(1) })),
        }),
      }),
    )
    .max(NODES_MAX),
});
type Node = z.infer<typeof nodesSchema>['data'][number];
const offersSchema = z.object({ offers: z.array(offerSchema).max(1_000) });

const REGISTRY = '/v1/registry/nodes';
const deploymentOf = (session: string) => `/admin/nodes/${session}/deployment`;
/** Returns the job's name: the id of a deployment without the number at its end. */
const nameOf = (id: string) => id.replace(/-\d+$/, '');

/** Lists the registered agents and sends orders to them. */
class Agents {
  readonly #cluster: ClusterConfig;
  readonly #api: GatewayClient;
  readonly #now: () => number;
  /** By session: when it accepted an order of this factory. */
  readonly #given = new Map<string, number>();
  #asked: { at: number; nodes: Promise<Node[]> } | undefined;

  constructor(cluster: ClusterConfig, api: GatewayClient, now: () => number) {
    this.#cluster = cluster;
    this.#api = api;
    this.#now = now;
  }

  /** @throws LauncherError */
  async nodes(): Promise<Node[]> {
    try {
      const { data } = nodesSchema.parse(await this.#api.get(REGISTRY));
      return data.filter(({ state }) => state !== 'LEFT');
    } catch (cause) {
      throw new LauncherError('unreachable', errorLine(cause), { cause });
    }
  }

  /** @throws LauncherError */
  recent(): Promise<Node[]> {
    if (this.#asked === undefined || this.#now() - this.#asked.at > NODES_FRESH_MS)
      this.#asked = { at: this.#now(), nodes: this.nodes() };
    return this.#asked.nodes;
  }

  idleOf(pool: PoolConfig, all: readonly Node[]): Node[] {
    for (const [session, at] of this.#given) if (this.#now() - at > ORDER_VISIBLE_MS) this.#given.delete(session);
    return all
      .filter((node) => isIdle(node) && !this.#given.has(node.session) && isOf(node, pool, this.#cluster))
      .sort((a, b) => (a.session < b.session ? -1 : 1));
  }

  /** @throws LauncherError */
  async order({ pool, deployment }: Submission, id: string): Promise<void> {
    if (deployment === undefined) throw new LauncherError('refused', 'its recipe has no template for idle agents');
    const refusals: string[] = [];
    for (const { session } of this.idleOf(pool, await this.nodes()).slice(0, TRIES_MAX)) {
      this.#given.set(session, this.#now());
      try {
        return await this.#api.put(deploymentOf(session), { id, ...deployment });
      } catch (error) {
        // If the agent's answer was lost, it may have accepted the order. The registry then lists the deployment by its
        // id.
        if (!isFinal(error)) throw new LauncherError('unclear', errorLine(error), { cause: error });
        this.#given.delete(session);
        refusals.push(`node ${session.slice(0, 8)}: ${error.message}`);
      }
    }
    throw new LauncherError('refused', refusals.join('; ') || `${pool.name} has no idle node left`);
  }

  /** Ends a deployment. Does nothing if no session runs it. @throws LauncherError */
  async end(id: string, drainMs: number): Promise<void> {
    const node = (await this.nodes()).find(({ labels }) => labels[DEPLOYMENT_LABEL] === id);
    if (node === undefined) return;
    try {
      await this.#api.delete(`${deploymentOf(node.session)}?drain_ms=${drainMs}`);
    } catch (error) {
      // A proxy's page is not the gateway's answer: the deployment may still run.
      const code = isFinal(error) ? error.code : undefined;
      if (code === 'not_found') return;
      throw new LauncherError(code === undefined ? 'unreachable' : 'refused', errorLine(error), { cause: error });
    }
  }

  /** @throws Error if the gateway refuses or its answer is malformed */
  async offersOf({ session }: Node) {
    return offersSchema.parse(await this.#api.get(deploymentOf(session))).offers;
  }
}

export function agentsLauncher(cluster: ClusterConfig, api: GatewayClient, now: () => number = Date.now): Launcher {
  const agents = new Agents(cluster, api, now);
  return {
    kind: 'agents',
    jobId: '',
    seen: 'real',
    async submit(submission) {
      const ids: string[] = [];
      for (let n = 0; n < submission.count; n++) {
        const id = `${submission.name}-${n}`;
        await agents.order(submission, id).catch((error: unknown) => {
          // Nodes accepted some of the deployments. The next list shows them by their name.
          if (ids.length > 0 && error instanceof LauncherError)
            throw new LauncherError('unclear', error.message, { cause: error });
          throw error;
        });
        ids.push(id);
      }
      return ids;
    },
    async list(prefix) {
      return (await agents.recent()).flatMap(({ labels }): ListedJob[] => {
        const [id, failed] = [labels[DEPLOYMENT_LABEL], failedDeployment(labels)];
        if (id?.startsWith(prefix) === true) return [{ id, name: nameOf(id), state: 'running' }];
        if (failed?.id.startsWith(prefix) !== true) return [];
        return [{ id: failed.id, name: nameOf(failed.id), state: 'ended', ended: 'failed', reason: failed.reason }];
      });
    },
    async capacity() {
      const all = await agents.recent();
      return cluster.pools.map((pool) => ({
        pool: pool.name,
        idle: agents.idleOf(pool, all).length * pool.gpus_per_node,
      }));
    },
    async cancel(ids) {
      for (const id of ids) await agents.end(id, 0);
    },
    drain: (id, drainMs) => agents.end(id, drainMs),
    async check({ pool, deployment }) {
      const [node] = agents.idleOf(pool, await agents.nodes());
      if (node === undefined) return { ok: true, text: 'no node is idle now' };
      try {
        const offer = (await agents.offersOf(node)).find(({ template }) => template === deployment?.template);
        if (offer === undefined || deployment === undefined)
          return { ok: false, text: `node ${node.session.slice(0, 8)} has no template ${deployment?.template ?? ''}` };
        bindParameters(offer.parameters, deployment.parameters);
        return { ok: true, text: `template ${offer.template} accepts it` };
      } catch (error) {
        return { ok: false, text: errorLine(error) };
      }
    },
  };
}

/** True if the gateway itself refused, so that nothing was changed. */
const isFinal = (error: unknown): error is GatewayRefusalError =>
  error instanceof GatewayRefusalError && error.status < 500;

const isIdle = ({ state, suspected, labels }: Node): boolean =>
  state !== 'DOWN' && !suspected && labels[ACCEPTS_LABEL] !== undefined;

function isOf({ cluster: where, hardware }: Node, { gpu, gpus_per_node }: PoolConfig, cluster: ClusterConfig): boolean {
  if (cluster.cluster !== undefined && cluster.cluster !== where) return false;
  const count = hardware.gpus.reduce((sum, one) => sum + one.count, 0);
  return count === gpus_per_node && hardware.gpus.every((one) => gpuClass(one.class) === gpuClass(gpu));
}
