import type { Shape, Site } from '../../scheduler/assignment/types.ts';
import { SchedulerError } from '../../scheduler/errors.ts';
import { type DeploymentPlan, gpusOfPlan, gpusOfShape, sameShape, shapeText } from './deployment-plan.ts';

/**
 * One replica and its GPUs, by number: GPU g is in node ⌊g / gpusPerNode⌋. Stage s of a pipeline has `tp` consecutive
 * ones.
 */
export interface PlacedReplica {
  /** Unique within a run: a replica that is kept keeps its id. */
  id: number;
  shape: Shape;
  gpus: readonly number[];
}

export interface ReplicaPlacement {
  replicas: PlacedReplica[];
  /** Ids of replicas that stay unchanged. */
  kept: ReadonlySet<number>;
}

/**
 * Assigns a plan to GPUs. Running replicas of a wanted shape stay in place; a stage's tensor parallelism stays inside a
 * node. If the staying replicas leave too few GPUs for the others, those in the way also move.
 *
 * @throws SchedulerError `infeasible` if the plan does not fit at all
 */
export function place(
  plan: DeploymentPlan,
  current: readonly PlacedReplica[],
  site: Site,
  lost: ReadonlySet<number> = new Set(),
): ReplicaPlacement {
  if (gpusOfPlan(plan) > site.gpus - lost.size)
    throw new SchedulerError('infeasible', `the plan has ${gpusOfPlan(plan)} GPUs, there are ${site.gpus - lost.size}`);
  const wanted = plan.flatMap(({ shape, replicas }) => Array.from({ length: replicas }, () => shape));
  const left = [...wanted].sort((a, b) => b.tp - a.tp || b.pp - a.pp);
  const keep: PlacedReplica[] = [];
  for (const one of current) {
    if (one.gpus.some((gpu) => lost.has(gpu))) continue;
    const at = left.findIndex((shape) => sameShape(shape, one.shape));
    if (at < 0) continue;
    left.splice(at, 1);
    keep.push(one);
  }
  let id = current.reduce((most, one) => Math.max(most, one.id), -1) + 1;
  for (;;) {
    const found = firstFit(left, keep, site, lost);
    if (found !== undefined) {
      const fresh = found.map(({ shape, gpus }) => ({ id: id++, shape, gpus }));
      return { replicas: [...keep, ...fresh], kept: new Set(keep.map((one) => one.id)) };
    }
    // The smallest replica is the cheapest to move, and most often splits a node.
    const smallest = keep.reduce<PlacedReplica | undefined>(
      (least, one) => (least === undefined || one.gpus.length < least.gpus.length ? one : least),
      undefined,
    );
    if (smallest === undefined) break;
    keep.splice(keep.indexOf(smallest), 1);
    left.push(smallest.shape);
    left.sort((a, b) => b.tp - a.tp || b.pp - a.pp);
  }
  throw new SchedulerError('infeasible', `no node has room for ${wanted.map(shapeText).join(', ')}`);
}

/** First fit, widest first; each stage in the node that it leaves the fullest. */
function firstFit(
  shapes: readonly Shape[],
  keep: readonly PlacedReplica[],
  site: Site,
  lost: ReadonlySet<number>,
): { shape: Shape; gpus: number[] }[] | undefined {
  const nodes: number[][] = [];
  const taken = new Set([...lost, ...keep.flatMap(({ gpus }) => gpus)]);
  for (let gpu = 0; gpu < site.gpus; gpu++) {
    if (taken.has(gpu)) continue;
    const node = Math.floor(gpu / site.gpusPerNode);
    nodes[node] ??= [];
    nodes[node].push(gpu);
  }
  const found: { shape: Shape; gpus: number[] }[] = [];
  for (const shape of shapes) {
    const gpus: number[] = [];
    for (let stage = 0; stage < shape.pp; stage++) {
      const room = nodes.filter((free) => free !== undefined && free.length >= shape.tp);
      const node = room.reduce<number[] | undefined>(
        (best, free) => (best === undefined || free.length < best.length ? free : best),
        undefined,
      );
      if (node === undefined) return undefined;
      gpus.push(...node.splice(0, shape.tp));
    }
    if (gpus.length === gpusOfShape(shape)) found.push({ shape, gpus });
  }
  return found;
}
