/** All input of one round of decisions. */
import type { ModelDemand, ServingNode } from '../../shared/factory/exchange.ts';
import { type ModelPlacement, placementsOf } from '../config/placements.ts';
import type { FactoryConfig, ModelConfig } from '../config/schema.ts';
import type { Capacity, ListedJob } from '../launchers/launcher.ts';
import { jobContext, jobContextId } from '../recipes/job-context.ts';

/** A cluster's answer in this round. */
export type ClusterView =
  | { reachable: true; jobs: readonly ListedJob[]; capacity?: readonly Capacity[] }
  | { reachable: false; reason: string };

export interface FactoryWorld {
  config: FactoryConfig;
  models: readonly PlacedModel[];
  /** By id; a missing cluster is still being asked. */
  clusters: ReadonlyMap<string, ClusterView>;
  /** By model. */
  demand: ReadonlyMap<string, ModelDemand>;
  /** undefined: the gateway could not be asked; then nothing that serves is ended. */
  nodes: readonly ServingNode[] | undefined;
  /** Time of the previous round; absent: this process has had no round yet. */
  before?: number;
}

export interface PlacedModel {
  model: ModelConfig;
  places: readonly PlacedEngine[];
}
export interface PlacedEngine extends ModelPlacement {
  context: string;
}

export function placedModels(config: FactoryConfig): PlacedModel[] {
  return config.models.map((model) => ({
    model,
    places: placementsOf(config, model).map((place) => ({
      ...place,
      context: jobContextId(jobContext(model.id, place)),
    })),
  }));
}

export type FactoryAction =
  | { kind: 'submit'; model: string; place: PlacedEngine; count: number; why: string }
  /** The gateway orders the node to accept no new requests, finish the running ones and end. */
  | { kind: 'drain'; cluster: string; job: string; session: string; model?: string; why: string }
  | { kind: 'cancel'; cluster: string; jobs: string[]; model?: string; why: string };

/** One sentence about a decision or an event. */
export interface DecisionNote {
  model?: string;
  text: string;
}
