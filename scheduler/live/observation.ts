/** The network as the planner sees it: replicas that it may move, nodes that it counts on, and idle nodes. */
import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import type { Planner } from '../planner/types.ts';
import { parallelismText } from '../roofline/parallelism.ts';
import type { PlanOptions, Pool } from '../solver/planning-problem.ts';
import type { ReplicaPlace } from '../solver/replica-place.ts';
import { agentPoolId, agentPools, type DeploymentDescriptions, deployedSpread } from './agent-pools.ts';
import { knownModel, liveNodes, type PlacementNode } from './live-nodes.ts';
import type { PlannerGateway } from './planner-gateway.ts';

/** Prefix of the ids of deployments that a factory ordered. */
const FACTORY_PREFIX = 'otela-';

/** What a plan for a live network is made from. */
export interface PlanningContext {
  gateway: PlannerGateway;
  catalogue: HardwareCatalogue;
  planner: Planner;
  options: PlanOptions;
  descriptions: DeploymentDescriptions;
  /** Wall clock, ms. */
  now: () => number;
  log: (line: string) => void;
}

/**
 * A replica that a factory started on an idle agent by an order. The factory moves the replica if the plan moves it.
 */
interface DeployedReplica extends ReplicaPlace {
  session: string;
  /** False while the engine of the replica starts. */
  serves: boolean;
}

export interface Observation {
  nodes: PlacementNode[];
  deployed: DeployedReplica[];
  /** Nodes that serve and that no factory's order started: a plan includes them and does not change them. */
  others: PlacementNode[];
  idle: PlacementNode[];
  /** Pools of agents that wait for orders, or run a factory's order. */
  pools: Pool[];
}

export async function observe({ gateway, catalogue, descriptions, log }: PlanningContext): Promise<Observation> {
  const nodes = await liveNodes(gateway, catalogue, log);
  const ordered = ({ deployment }: PlacementNode) => deployment?.startsWith(FACTORY_PREFIX) === true;
  const known = await descriptions.of(
    nodes.filter((node) => node.accepts || ordered(node)),
    log,
  );
  const deployed = nodes.filter(ordered).flatMap((node): DeployedReplica[] => {
    const description = known.get(node.session);
    const model = knownModel(catalogue, node.models[0] ?? String(description?.deployment?.parameters.model ?? ''))?.id;
    if (description === undefined || model === undefined) return [];
    const spread = deployedSpread(description, node.gpus);
    const pool = agentPoolId(node, description.offers);
    const place = { model, pool, tp: spread.tp, ...(parallelismText(spread) === `TP ${spread.tp}` ? {} : { spread }) };
    return [{ ...place, session: node.session, serves: node.models.length > 0 }];
  });
  const sessions = new Set(deployed.map(({ session }) => session));
  const foreign = nodes.filter(({ session }) => !sessions.has(session));
  return {
    nodes,
    deployed,
    others: foreign.filter(({ models }) => models.length > 0),
    idle: foreign.filter(({ models, deployment }) => models.length === 0 && deployment === undefined),
    pools: agentPools(
      nodes.filter((node) => node.accepts || sessions.has(node.session)),
      known,
    ),
  };
}
