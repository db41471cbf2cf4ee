/**
 * The network as `watch --forecast` sees it: options of each model, running replicas, and the sessions of each option.
 */
import type { RequestKind } from '../../shared/routing/kinds/request-kind.ts';
import type { Model } from '../catalogue/model.ts';
import type { PlacementNode } from '../live/live-nodes.ts';
import type { Observation, PlanningContext } from '../live/observation.ts';
import { gpusOf } from '../roofline/parallelism.ts';
import type { Placement } from '../solver/planning-problem.ts';
import { groupReplicas, isSamePlace, type ReplicaPlace, spreadText } from '../solver/replica-place.ts';
import type { FittedKind } from '../workload/request-kinds.ts';
import type { FollowedPool, Layout, ReplicaOption } from './follow-problem.ts';
import { followedPool, type OptionContext, replicaOptions } from './replica-options.ts';

export interface FollowedModel {
  model: Model;
  /** The model's name in the gateway and on nodes. */
  name: string;
  kinds: readonly FittedKind[];
  published: readonly RequestKind[];
}

export interface NetworkView {
  options: ReplicaOption[];
  pools: FollowedPool[];
  running: Layout;
  /** Sessions that serve now, by index of the option. */
  serving: Map<number, string[]>;
  /** Replicas that a factory deployed and that match no option of a followed model. A plan keeps them. */
  others: Placement[];
}

/** Nodes that no factory's order started stay as they are: each is a fixed option in a separate pool. */
export function networkView(
  models: readonly FollowedModel[],
  observation: Observation,
  planning: Pick<PlanningContext, 'options'>,
  context: Pick<OptionContext, 'measured' | 'tables'>,
): NetworkView {
  const { pools, deployed } = observation;
  const { limits, calibration } = planning.options;
  const whole = { ...context, limits, calibration };
  const options = models.flatMap(({ model, kinds }) => replicaOptions(model, kinds, { ...whole, pools }));
  const followed = pools.map(followedPool);
  const running = options.map(({ place }) => deployed.filter((replica) => isSamePlace(replica, place)).length);
  const serving = new Map<number, string[]>();
  const add = (option: number, session: string) => serving.set(option, [...(serving.get(option) ?? []), session]);
  for (const replica of deployed) {
    const at = options.findIndex(({ place }) => isSamePlace(replica, place));
    if (at >= 0 && replica.serves) add(at, replica.session);
  }
  for (const node of observation.others) {
    for (const followedModel of models) addForeign(node, followedModel, whole, { options, running, add });
  }
  const others = groupReplicas(deployed.filter((one) => !options.some(({ place }) => isSamePlace(one, place))));
  for (const { pool: id, replicas, tp, spread = { tp } } of others) {
    const pool = followed.find((one) => one.id === id);
    if (pool === undefined) continue;
    Object.assign(pool, { replicas: pool.replicas - replicas, gpus: pool.gpus - replicas * gpusOf(spread) });
  }
  return { options, pools: followed, running, serving, others };
}

interface Growing {
  options: ReplicaOption[];
  running: number[];
  add(option: number, session: string): void;
}

function addForeign(
  node: PlacementNode,
  { model, name, kinds }: FollowedModel,
  context: Omit<OptionContext, 'pools'>,
  { options, running, add }: Growing,
): void {
  if (!node.models.includes(name)) return;
  const id = `network: ${node.pool}`;
  const place: ReplicaPlace = { model: model.id, pool: id, tp: node.gpus };
  let at = options.findIndex((one) => one.fixed === true && isSamePlace(one.place, place));
  if (at < 0) {
    const pools = [{ id, gpu: node.gpu, nodes: 1, gpusPerNode: node.gpus, oneEngine: true }];
    const found = replicaOptions(model, kinds, { ...context, pools });
    const whole = found.find((one) => isSamePlace(one.place, place)) ?? found.find(({ gpus }) => gpus === node.gpus);
    if (whole === undefined) return;
    at = options.push({ ...whole, place, fixed: true }) - 1;
    running.push(0);
  }
  running[at] = (running[at] ?? 0) + 1;
  add(at, node.session);
}

/** Formats replicas by parallelism, for people. */
export function replicasText(
  { options }: Pick<NetworkView, 'options'>,
  layout: Layout,
  model: string,
): Record<string, number> {
  const found: Record<string, number> = {};
  for (const [i, { place }] of options.entries()) {
    const count = layout[i] ?? 0;
    if (place.model === model && count > 0) found[spreadText(place)] = (found[spreadText(place)] ?? 0) + count;
  }
  return found;
}
