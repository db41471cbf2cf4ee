import * as z from 'zod';
import { ACCEPTS_LABEL, DEPLOYMENT_LABEL } from '../../shared/deployment/deployment-labels.ts';
import { GPUS_MAX } from '../../shared/lattice/node-record.ts';
import { isGpuSlice } from '../../shared/slurm/gpu-gres.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { findGpu, findModel, type HardwareCatalogue, parseAs } from '../catalogue/catalogue.ts';
import type { GpuType } from '../catalogue/gpu.ts';
import type { Model } from '../catalogue/model.ts';
import { SchedulerError } from '../errors.ts';
import type { ClusterInventory } from '../planner/read-input.ts';
import { tpProblem } from '../roofline/parallelism.ts';
import { type Demand, type Placement, type Pool, TIERS, type Tier } from '../solver/planning-problem.ts';
import type { PlannerGateway } from './planner-gateway.ts';

/** The fields of `/v1/registry/nodes` that placement needs; other fields may change. */
const nodesSchema = z.object({
  data: z
    .array(
      z.object({
        session: z.string().max(64),
        state: z.string().max(32),
        suspected: z.boolean(),
        provider: z.string().max(256),
        cluster: z.string().max(256),
        tier: z.enum(TIERS).default('stable'),
        labels: z.record(z.string(), z.string()).default({}),
        models: z
          .array(
            z.object({
              id: z.string().max(256),
              state: z.string().max(32),
              quantization: z.string().max(32).optional(),
            }),
          )
          .max(64),
        job: z.object({ id: z.string().max(64) }).optional(),
        hardware: z.object({
          // Groups of equal GPUs. `count` is the number of GPUs of a group. Older gateways omit it; then it is 1.
          gpus: z.array(
            z.object({
              class: z.string().max(64),
              name: z.string().max(256).optional(),
              vram_mib: z.number().nonnegative(),
              count: z.number().int().positive().optional(),
            }),
          ),
        }),
      }),
    )
    .max(100_000),
});

/** The fields of a node's session that placement needs. */
export interface PlacementNode {
  session: string;
  provider: string;
  cluster: string;
  labels: Record<string, string>;
  /** True if the node waits for a deployment. */
  accepts: boolean;
  /** The deployment that the node runs. */
  deployment: string | undefined;
  /** The node's job in the batch system. */
  job: string | undefined;
  /** Models that the node serves or loads. */
  models: string[];
  /** Quantization of each model's weights, as the node claims. */
  quantization: ReadonlyMap<string, string>;
  tier: Tier;
  gpu: GpuType;
  gpus: number;
  pool: string;
}

/**
 * Maximum number of kinds of nodes in a plan. The most frequent kinds take precedence. Without a bound, a provider
 * could create any number of kinds.
 */
const POOLS_MAX = 128;

export async function liveNodes(
  gateway: PlannerGateway,
  catalogue: HardwareCatalogue,
  log: (line: string) => void,
): Promise<PlacementNode[]> {
  const { data } = parseGatewayAnswer(nodesSchema, await gateway.get('/v1/registry/nodes'), '/v1/registry/nodes');
  const unknown = new Set<string>();
  const nodes = data.flatMap((entry): PlacementNode[] => {
    if (entry.state === 'LEFT' || entry.state === 'DOWN' || entry.suspected) return [];
    const [first] = entry.hardware.gpus;
    if (first === undefined) return [];
    // The name from the driver shows whether the GPU is a slice; its class does not.
    const gpuName = isGpuSlice(first.name ?? '') ? (first.name ?? '') : first.class;
    const gpu = knownGpu(catalogue, gpuName, first.vram_mib);
    if (gpu === undefined) {
      unknown.add(gpuName);
      return [];
    }
    const gpus = entry.hardware.gpus.reduce((sum, one) => sum + (one.count ?? 1), 0);
    // A node with more GPUs than GPUS_MAX is left out, so that the plan continues without it. Current gateways list no
    // such node.
    if (gpus > GPUS_MAX) {
      log(`node ${entry.session.slice(0, 8)} of ${entry.provider} claims ${gpus} GPUs: skipped`);
      return [];
    }
    const models = entry.models.filter(({ state }) => state !== 'on-disk').map(({ id }) => id);
    const quantization = new Map(
      entry.models.flatMap(({ id, quantization: how }) => (how === undefined ? [] : [[id, how] as const])),
    );
    const { session, provider, cluster, labels, tier } = entry;
    const deployment = labels[DEPLOYMENT_LABEL];
    const accepts = labels[ACCEPTS_LABEL] !== undefined;
    const pool = `${gpu.id} x${gpus}${tier === 'volatile' ? ' volatile' : ''}`;
    const job = entry.job?.id;
    return [
      { session, provider, cluster, labels, accepts, deployment, models, quantization, tier, job, gpu, gpus, pool },
    ];
  });
  for (const name of unknown)
    log(`nodes with ${name} are skipped: the catalogue does not know that GPU (add it with --gpus)`);
  return nodes;
}

function knownGpu(catalogue: HardwareCatalogue, name: string, vramMib: number): GpuType | undefined {
  try {
    return findGpu(catalogue, name, vramMib);
  } catch (error) {
    if (error instanceof SchedulerError && error.code === 'unknown_gpu') return undefined;
    throw error;
  }
}

/**
 * Groups equal nodes into pools, with the models that run on them. Each replica has all GPUs of its node, because an
 * agent has one engine. Models that the catalogue lacks count if `workload` has them.
 */
export function inventoryOf(
  nodes: readonly PlacementNode[],
  catalogue: HardwareCatalogue,
  log: (line: string) => void,
  workload: readonly Demand[] = [],
): ClusterInventory {
  const opaque = new Set(workload.filter(({ model }) => model.opaque === true).map(({ model }) => model.id));
  const pools = new Map<string, Pool>();
  const running = new Map<string, Placement>();
  for (const node of nodes) {
    const placed = runningOn(node, catalogue, opaque);
    if (placed === 'foreign') {
      log(
        `node ${node.session.slice(0, 8)} serves ${node.models.join(', ')}, which is not in the catalogue: the plan skips this node`,
      );
      continue;
    }
    const { pool: id, gpu, tier } = node;
    const pool = pools.get(id) ?? { id, gpu, nodes: 0, gpusPerNode: node.gpus, tier };
    pools.set(node.pool, { ...pool, nodes: pool.nodes + 1 });
    if (placed === undefined) continue;
    const key = `${placed.model} ${placed.pool}`;
    running.set(key, { ...placed, replicas: (running.get(key)?.replicas ?? 0) + 1 });
  }
  const kept = [...pools.values()].sort((a, b) => b.nodes - a.nodes).slice(0, POOLS_MAX);
  if (kept.length < pools.size)
    log(`${pools.size - kept.length} rare kinds of node are skipped: a plan uses at most ${POOLS_MAX} kinds`);
  const ids = new Set(kept.map(({ id }) => id));
  return { pools: kept, running: [...running.values()].filter(({ pool }) => ids.has(pool)) };
}

function runningOn(
  node: PlacementNode,
  catalogue: HardwareCatalogue,
  opaque: ReadonlySet<string>,
): Placement | undefined | 'foreign' {
  const [name] = node.models;
  if (name === undefined) return undefined;
  if (opaque.has(name)) return { model: name, pool: node.pool, tp: node.gpus, replicas: 1 };
  const model = knownModel(catalogue, name);
  if (model === undefined || tpProblem(model, node.gpus) !== undefined) return 'foreign';
  return { model: model.id, pool: node.pool, tp: node.gpus, replicas: 1 };
}

export async function liveInventory(
  gateway: PlannerGateway,
  catalogue: HardwareCatalogue,
  log: (line: string) => void,
  workload: readonly Demand[] = [],
): Promise<ClusterInventory> {
  const nodes = await liveNodes(gateway, catalogue, log);
  const closed = nodes.filter(({ models, accepts }) => models.length === 0 && !accepts);
  if (closed.length > 0)
    log(`${closed.length} idle nodes are skipped: their agents do not accept deployments (--accept-deployments)`);
  const inventory = inventoryOf(
    nodes.filter((node) => !closed.includes(node)),
    catalogue,
    log,
    workload,
  );
  if (inventory.pools.length === 0)
    throw new SchedulerError('infeasible', `${gateway.url} knows no node with GPUs that a plan can use`);
  return inventory;
}

export function knownModel(catalogue: HardwareCatalogue, name: string): Model | undefined {
  try {
    return findModel(catalogue, name);
  } catch (error) {
    if (error instanceof SchedulerError && error.code === 'unknown_model') return undefined;
    throw error;
  }
}

export function parseGatewayAnswer<T>(schema: z.ZodType<T>, value: unknown, path: string): T {
  try {
    return parseAs(schema, value, path);
  } catch (cause) {
    throw new SchedulerError(
      'gateway',
      `this version does not understand the response of ${path}: ${errorText(cause)}`,
      {
        cause,
      },
    );
  }
}
