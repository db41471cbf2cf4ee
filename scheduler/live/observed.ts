import * as z from 'zod';
import { ACCEPTS_LABEL, DEPLOYMENT_LABEL, failedDeployment } from '../../shared/deployment/labels.ts';
import { type Catalogue, findGpu, findModel, parse } from '../catalogue/catalogue.ts';
import type { Gpu } from '../catalogue/gpu.ts';
import type { Model } from '../catalogue/model.ts';
import { PRECISIONS, type Precision } from '../catalogue/precision.ts';
import { SchedulerError } from '../errors.ts';
import type { Inventory } from '../planner/input.ts';
import { tpProblem } from '../roofline/deployment.ts';
import { type Demand, type Placement, type Pool, TIERS, type Tier } from '../solver/problem.ts';
import { burstiness } from './burstiness.ts';
import type { Gateway } from './gateway.ts';

/** What of `/v1/registry/nodes` placement needs; the rest may change without it. */
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
          // Newer gateways group equal GPUs and count them.
          gpus: z
            .array(
              z.object({
                class: z.string().max(64),
                vram_mib: z.number().nonnegative(),
                count: z.number().int().positive().max(1024).optional(),
              }),
            )
            .max(1024),
        }),
      }),
    )
    .max(100_000),
});

/** What of `/admin/workload?window=…` placement needs. Numbers only; a model without answers has means of 0. */
const spread = z.object({ mean: z.number().nonnegative(), deviation: z.number().nonnegative() });
const workloadSchema = z.object({
  window_ms: z.number().positive().optional(),
  data: z
    .array(
      z.object({
        /** Whatever somebody asked for: a name that no model can have is left out like any other that nobody knows. */
        model: z.string(),
        requests_per_second: z.number().nonnegative(),
        /** Refused because nobody served the model; older gateways do not tell. */
        unserved: z.number().nonnegative().default(0),
        input: spread,
        output: spread,
      }),
    )
    .max(100_000),
});

/** Of a name that is told: models have shorter ones. */
const NAME_CHARS = 256;

/** A node session as placement sees it. */
export interface LiveNode {
  session: string;
  provider: string;
  cluster: string;
  labels: Record<string, string>;
  /** It waits for a deployment. */
  accepts: boolean;
  /** The deployment that it is. */
  deployment: string | undefined;
  /** Of the batch system it runs in. */
  job: string | undefined;
  /** Models it serves or loads. */
  models: string[];
  /** How it says that their weights are stored; by model. */
  quantization: ReadonlyMap<string, string>;
  tier: Tier;
  gpu: Gpu;
  gpus: number;
  pool: string;
}

/** One engine over more GPUs than this is somebody's joke at the planner's expense. */
const NODE_GPUS_MAX = 1024;
/** Kinds of node that are planned with, the most frequent first: a provider could else make any number of them. */
const POOLS_MAX = 128;

/** Deployments as the registry has them. */
export interface LiveDeployments {
  /** Sessions by the deployment that they are; a suspected or draining one has not gone. */
  there: Map<string, string>;
  /** Why it failed, by its id. */
  failed: Map<string, string>;
}

export async function liveNodes(
  gateway: Gateway,
  catalogue: Catalogue,
  log: (line: string) => void,
): Promise<LiveNode[]> {
  return (await liveNetwork(gateway, catalogue, log)).nodes;
}

export async function liveNetwork(
  gateway: Gateway,
  catalogue: Catalogue,
  log: (line: string) => void,
): Promise<{ nodes: LiveNode[]; deployments: LiveDeployments }> {
  const { data } = parseAnswer(nodesSchema, await gateway.get('/v1/registry/nodes'), '/v1/registry/nodes');
  const deployments: LiveDeployments = { there: new Map(), failed: new Map() };
  for (const { state, session, labels } of data) {
    if (state === 'LEFT') continue;
    const [there, failed] = [labels[DEPLOYMENT_LABEL], failedDeployment(labels)];
    if (there !== undefined) deployments.there.set(there, session);
    if (failed !== undefined) deployments.failed.set(failed.id, failed.reason);
  }
  const unknown = new Set<string>();
  const nodes = data.flatMap((entry): LiveNode[] => {
    if (entry.state === 'LEFT' || entry.state === 'DOWN' || entry.suspected) return [];
    const [first] = entry.hardware.gpus;
    if (first === undefined) return [];
    const gpu = knownGpu(catalogue, first.class, first.vram_mib);
    if (gpu === undefined) {
      unknown.add(first.class);
      return [];
    }
    const gpus = entry.hardware.gpus.reduce((sum, one) => sum + (one.count ?? 1), 0);
    if (gpus > NODE_GPUS_MAX) {
      log(`node ${entry.session.slice(0, 8)} of ${entry.provider} claims ${gpus} GPUs: left out`);
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
    log(`nodes with ${name} are left out: the catalogue does not know that GPU (add it with --gpus)`);
  return { nodes, deployments };
}

function knownGpu(catalogue: Catalogue, name: string, vramMib: number): Gpu | undefined {
  try {
    return findGpu(catalogue, name, vramMib);
  } catch (error) {
    if (error instanceof SchedulerError && error.code === 'unknown_gpu') return undefined;
    throw error;
  }
}

/** Pools of like nodes, and what runs on them: one replica over all GPUs of its node, as an agent wraps one engine. */
export function inventoryOf(nodes: readonly LiveNode[], catalogue: Catalogue, log: (line: string) => void): Inventory {
  const pools = new Map<string, Pool>();
  const running = new Map<string, Placement>();
  for (const node of nodes) {
    const placed = runningOn(node, catalogue);
    if (placed === 'foreign') {
      log(
        `node ${node.session.slice(0, 8)} serves ${node.models.join(', ')}, which the catalogue cannot place: left alone and left out`,
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
    log(`${pools.size - kept.length} rare kinds of node are left out: at most ${POOLS_MAX} are planned with`);
  const ids = new Set(kept.map(({ id }) => id));
  return { pools: kept, running: [...running.values()].filter(({ pool }) => ids.has(pool)) };
}

function runningOn(node: LiveNode, catalogue: Catalogue): Placement | undefined | 'foreign' {
  const [name] = node.models;
  if (name === undefined) return undefined;
  const model = knownModel(catalogue, name);
  if (model === undefined || tpProblem(model, node.gpus) !== undefined) return 'foreign';
  return { model: model.id, pool: node.pool, tp: node.gpus, replicas: 1 };
}

export async function liveInventory(
  gateway: Gateway,
  catalogue: Catalogue,
  log: (line: string) => void,
): Promise<Inventory> {
  const nodes = await liveNodes(gateway, catalogue, log);
  const closed = nodes.filter(({ models, accepts }) => models.length === 0 && !accepts);
  if (closed.length > 0)
    log(`${closed.length} idle nodes are left out: their agents take no deployments (--accept-deployments)`);
  const inventory = inventoryOf(
    nodes.filter((node) => !closed.includes(node)),
    catalogue,
    log,
  );
  if (inventory.pools.length === 0)
    throw new SchedulerError('infeasible', `${gateway.url} knows no node with GPUs that could be planned for`);
  return inventory;
}

/** Lengths of requests that nobody has answered yet: a chat's. */
const GUESS = {
  input: { kind: 'lognormal' as const, mean: 512, sd: 512 },
  output: { kind: 'lognormal' as const, mean: 256, sd: 256 },
};

/**
 * `window` as the gateway reads it: `10m`, `1h`. `nodes`: weights count as stored the way a node that serves them says; otherwise as the
 * catalogue knows them.
 */
export async function liveWorkload(
  gateway: Gateway,
  catalogue: Catalogue,
  window: string,
  log: (line: string) => void,
  nodes: readonly LiveNode[] = [],
): Promise<Demand[]> {
  const path = `/admin/workload?window=${encodeURIComponent(window)}`;
  const { data, window_ms } = parseAnswer(workloadSchema, await gateway.get(path), path);
  const lengths = ({ mean, deviation }: { mean: number; deviation: number }) => ({
    kind: 'lognormal' as const,
    mean: Math.max(1, mean),
    sd: deviation,
  });
  const demands = new Map<string, Demand>();
  for (const row of data) {
    const model = knownModel(catalogue, row.model);
    if (model === undefined) {
      log(
        `${row.model.slice(0, NAME_CHARS)} is asked for but left out: the catalogue does not know it (add it with --models NAME=config.json)`,
      );
      continue;
    }
    // Two names of one model: the busier one's lengths stand for both.
    const known = demands.get(model.id);
    // What nobody served is wanted as well: that is how a model without a replica gets one.
    const unserved = window_ms === undefined ? 0 : row.unserved / (window_ms / 1000);
    const rate = row.requests_per_second + unserved + (known?.rate ?? 0);
    const guessed = row.input.mean === 0 && row.output.mean === 0;
    if (guessed && unserved > 0)
      log(`${model.id} has been answered by nobody: planned with ${GUESS.input.mean} + ${GUESS.output.mean} tokens`);
    const seen = guessed ? GUESS : { input: lengths(row.input), output: lengths(row.output) };
    const { input, output } = known !== undefined && known.rate > row.requests_per_second ? known : seen;
    const weights = servedWeights(nodes, catalogue, model) ?? model.storage.weights;
    demands.set(model.id, { model, rate, cv: 1, input, output, weights, kv: model.storage.kv });
  }
  const cv = await burstiness(gateway, [...demands.keys()], (name) => knownModel(catalogue, name)?.id);
  return [...demands.values()].map((demand) => ({ ...demand, cv: cv.get(demand.model.id) ?? 1 }));
}

/** Of the first node that serves the model and says how; undefined where none says, or what this version does not know. */
function servedWeights(nodes: readonly LiveNode[], catalogue: Catalogue, model: Model): Precision | undefined {
  for (const { quantization } of nodes) {
    for (const [name, how] of quantization) {
      if (knownModel(catalogue, name)?.id !== model.id) continue;
      const precision = precisionOf(how);
      if (precision !== undefined) return precision;
    }
  }
  return undefined;
}

/** vLLM's and SGLang's names of a quantisation. */
function precisionOf(quantization: string): Precision | undefined {
  const name = quantization.toLowerCase();
  const found = PRECISIONS.find((one) => name === one || name.startsWith(`${one}_`) || name.endsWith(`_${one}`));
  if (found !== undefined) return found;
  if (/awq|gptq|w4a16|4bit/.test(name)) return 'int4';
  return /w8a8|8bit/.test(name) ? 'int8' : undefined;
}

function knownModel(catalogue: Catalogue, name: string): Model | undefined {
  try {
    return findModel(catalogue, name);
  } catch (error) {
    if (error instanceof SchedulerError && error.code === 'unknown_model') return undefined;
    throw error;
  }
}

function parseAnswer<T>(schema: z.ZodType<T>, value: unknown, path: string): T {
  try {
    return parse(schema, value, path);
  } catch (cause) {
    throw new SchedulerError(
      'gateway',
      `${path} answers what this version does not understand: ${cause instanceof Error ? cause.message : ''}`,
      { cause },
    );
  }
}
