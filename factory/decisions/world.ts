/** All that one round of decisions looks at. */
import type { ModelDemand, ServingNode } from '../../shared/factory/exchange.ts';
import { type ModelPlacement, placementsOf } from '../config/placements.ts';
import type { FactoryConfig, ModelConfig } from '../config/schema.ts';
import type { Capacity, ListedJob } from '../launchers/launcher.ts';
import { jobContext, jobContextId } from '../recipes/job-context.ts';

/** What a cluster answered in this round. */
export type ClusterView =
  | { reachable: true; jobs: readonly ListedJob[]; capacity?: readonly Capacity[] }
  | { reachable: false; reason: string };

export interface FactoryWorld {
  config: FactoryConfig;
  models: readonly PlacedModel[];
  /** By id; one that is missing is being asked still. */
  clusters: ReadonlyMap<string, ClusterView>;
  /** By model. */
  demand: ReadonlyMap<string, ModelDemand>;
  /** Undefined: the gateway could not be asked; then nothing that serves is ended. */
  nodes: readonly ServingNode[] | undefined;
  /** When the round before this one looked; absent: this process has looked at nothing yet. */
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
  /** Takes nothing new, finishes what runs, ends: the gateway orders it. */
  | { kind: 'drain'; cluster: string; job: string; session: string; model?: string; why: string }
  | { kind: 'cancel'; cluster: string; jobs: string[]; model?: string; why: string };

/** One sentence of what was decided or has happened. */
export interface DecisionNote {
  model?: string;
  text: string;
}
