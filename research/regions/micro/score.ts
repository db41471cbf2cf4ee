import { type Cluster, QUEUE_MAX } from '../simulator/cluster.ts';
import { HISTORY, type Job, type Server } from '../simulator/server.ts';
import { TASK_MEMORY_GB, TASK_TYPES } from '../world/tasks.ts';
import type { World } from '../world/world.ts';

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
/** (10): τ, seconds. */
const HISTORY_DECAY_S = 300;
/** (10): similarity of a task of the same model with another beginning. */
const SAME_MODEL = 0.5;

/** (7): score = w1·HW + w2·Load + w3·Loc, higher is better. */
export function score(server: Server, job: Job, cluster: Cluster, weights: ScoreWeights): number {
  return (
    weights.hardware * (hardwareOf(cluster.world)[server.kind]?.[job.task.model] ?? 0) +
    weights.load * loadOf(server) +
    weights.locality * locality(server, job, cluster.nowS)
  );
}

const tables = new WeakMap<World, number[][]>();

/** (8) by kind of server and model: min(1, C_s/c_i) · min(1, M_s/m_i) · match; C_s: speed relative to an A100. */
function hardwareOf(world: World): number[][] {
  let table = tables.get(world);
  if (table === undefined) {
    table = world.kinds.map((kind) =>
      world.models.map(({ type, memoryGb }) => {
        const name = TASK_TYPES[type] ?? 'light';
        const speed = Math.min(1, 1 / (kind.factor[type] ?? 1));
        const memory = Math.min(1, kind.gpu.memoryBytes / 1e9 / (memoryGb + TASK_MEMORY_GB[name]));
        return speed * memory * (kind.made === name ? 1 : OTHER_TYPE);
      }),
    );
    tables.set(world, table);
  }
  return table;
}

/** (9): exp(−κ(util_s + q_s/q_max)); util_s: of the last slot, but at least the task that runs now. */
function loadOf(server: Server): number {
  const use = server.running === undefined ? server.use : 1;
  return Math.exp(-LOAD_DECAY * (use + server.queued / QUEUE_MAX));
}

/** (10): mean over the server's last tasks of sim(i, j) · exp(−age/τ). */
function locality(server: Server, { task }: Job, nowS: number): number {
  if (server.lastModel !== task.model) return 0;
  const known = Math.min(server.past, HISTORY);
  let sum = 0;
  for (let at = 0; at < known; at++) {
    const same = task.prefix >= 0 && server.pastPrefixes[at] === task.prefix;
    sum += (same ? 1 : SAME_MODEL) * Math.exp(((server.pastS[at] ?? 0) - nowS) / HISTORY_DECAY_S);
  }
  return known > 0 ? sum / known : 0;
}
