import type { Cluster } from '../simulator/cluster.ts';
import { QUEUE_MAX } from '../simulator/cluster.ts';
import type { Job, Server } from '../simulator/server.ts';
import { TASK_MEMORY_GB, TASK_TYPES } from '../world/tasks.ts';

/** Weights of (7); the paper does not give them. */
export interface ScoreWeights {
  hardware: number;
  load: number;
  locality: number;
}
export const DEFAULT_SCORE: ScoreWeights = { hardware: 0.4, load: 0.4, locality: 0.2 };

/** (8): factor of a GPU that is not made for the type. */
const OTHER_TYPE = 0.7;
/** (9): κ. */
const LOAD_DECAY = 2;
/** Speed that a task wants for its type, relative to an A100. */
const WANTED_SPEED = 1;

/** (7): score = w1·HW + w2·Load + w3·Loc, higher is better. */
export function score(server: Server, job: Job, cluster: Cluster, weights: ScoreWeights): number {
  return (
    weights.hardware * hardware(server, job, cluster) +
    weights.load * loadOf(server, cluster) +
    weights.locality * locality(server, job)
  );
}

/** (8): min(1, C_s/c_i) · min(1, M_s/m_i) · match. */
function hardware(server: Server, { task }: Job, { world }: Cluster): number {
  const kind = world.kinds[server.kind];
  const type = TASK_TYPES[task.type];
  if (kind === undefined || type === undefined) return 0;
  const speed = Math.min(1, 1 / ((kind.factor[task.type] ?? 1) * WANTED_SPEED));
  const needsGb = (world.models[task.model]?.memoryGb ?? 0) + TASK_MEMORY_GB[type];
  return speed * Math.min(1, kind.gpu.memoryBytes / 1e9 / needsGb) * (kind.made === type ? 1 : OTHER_TYPE);
}

/** (9): exp(−κ(util_s + q_s/q_max)). */
function loadOf(server: Server, _cluster: Cluster): number {
  const busy = server.running === undefined ? 0 : 1;
  return Math.exp(-LOAD_DECAY * (busy + server.queued / QUEUE_MAX));
}

/**
 * (10), with the server's current contents instead of a decaying history: its prefix, otherwise its model, otherwise
 * nothing.
 */
function locality(server: Server, { task }: Job): number {
  if (server.lastModel !== task.model) return 0;
  return server.holdsPrefix(task.prefix) ? 1 : 0.5;
}
