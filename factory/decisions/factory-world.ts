/** The input of one round of decisions. */
import type { Capacity, ListedJob } from '../../node/batch-systems/batch-system.ts';
import type { ModelDemand, ServingNode } from '../../shared/factory/factory-exchange.ts';
import { furtherPlacements, type ModelPlacement, placementsOf } from '../config/model-placements.ts';
import type { FactoryConfig, ModelConfig } from '../config/schema.ts';
import type { PlannedShapes } from '../demand/demand-source.ts';
import { jobContext, jobContextId } from '../recipes/job-context.ts';

/** A cluster's answer in this round: its jobs and capacity, or the reason why it did not answer. */
export type ClusterView =
  | { reachable: true; jobs: readonly ListedJob[]; capacity?: readonly Capacity[] }
  | { reachable: false; reason: string };

export interface FactoryWorld {
  config: FactoryConfig;
  models: readonly PlacedModel[];
  /** By cluster id. A cluster that is missing here has not answered yet. */
  clusters: ReadonlyMap<string, ClusterView>;
  /** Demand by model. */
  demand: ReadonlyMap<string, ModelDemand>;
  /** By model: the shapes that a plan wants; absent: no plan names shapes. */
  planned?: ReadonlyMap<string, PlannedShapes>;
  /** Nodes at the gateway. Undefined: the gateway could not be queried; no serving job is ended then. */
  nodes: readonly ServingNode[] | undefined;
  /** Time of the previous round; absent: this is the first round of this process. */
  before?: number;
}

export interface PlacedModel {
  model: ModelConfig;
  places: readonly PlacedEngine[];
  /** Places of the recipe's other engines, which start only if a plan has their shape. */
  further: readonly PlacedEngine[];
}
export interface PlacedEngine extends ModelPlacement {
  context: string;
}

export function placedModels(config: FactoryConfig): PlacedModel[] {
  return config.models.map((model) => {
    const withContext = (place: ModelPlacement) => ({ ...place, context: jobContextId(jobContext(model.id, place)) });
    return {
      model,
      places: placementsOf(config, model).map(withContext),
      further: furtherPlacements(config, model).map(withContext),
    };
  });
}

export const allPlaces = ({ places, further }: PlacedModel): PlacedEngine[] => [...places, ...further];

export type FactoryAction =
  | { kind: 'submit'; model: string; place: PlacedEngine; count: number; why: string }
  /** An order to the node to accept no new requests, finish the running ones and end. */
  | { kind: 'drain'; cluster: string; job: string; session: string; model?: string; why: string }
  | { kind: 'cancel'; cluster: string; jobs: string[]; model?: string; why: string };

/** A sentence about a decision or an event. Such sentences form the history of decisions. */
export interface DecisionNote {
  model?: string;
  text: string;
}
