/** One place where a model's engine could run: a cluster, a pool and an engine. */
import { gpuClass } from '../../shared/hardware/gpu-classes.ts';
import type { ClusterConfig, EngineConfig, FactoryConfig, ModelConfig, PoolConfig, RecipeConfig } from './schema.ts';

export interface ModelPlacement {
  cluster: ClusterConfig;
  pool: PoolConfig;
  recipe: RecipeConfig;
  engine: EngineConfig;
}

type PlacementConfig = Pick<FactoryConfig, 'clusters' | 'recipes'>;

type ModelPlacementInput = Pick<ModelConfig, 'recipe' | 'clusters'>;

/**
 * Returns a model's places in the order of the file: clusters, and in each cluster its pools. In each pool, the
 * recipe's first engine that fits is used.
 */
export function placementsOf(config: PlacementConfig, model: ModelPlacementInput): ModelPlacement[] {
  const isFirst = ({ pool }: ModelPlacement, at: number, all: readonly ModelPlacement[]) => all[at - 1]?.pool !== pool;
  return possiblePlacements(config, model).filter(isFirst);
}

/**
 * Returns the places of the recipe's other engines on idle agents. An engine starts there only if a plan has its shape.
 */
export function furtherPlacements(config: PlacementConfig, model: ModelPlacementInput): ModelPlacement[] {
  const first = placementsOf(config, model);
  return possiblePlacements(config, model).filter(
    ({ cluster, pool, engine }) =>
      cluster.launcher === 'agents' && !first.some((place) => place.pool === pool && place.engine === engine),
  );
}

function possiblePlacements(config: PlacementConfig, model: ModelPlacementInput): ModelPlacement[] {
  const recipe = config.recipes.get(model.recipe);
  if (recipe === undefined) return [];
  return config.clusters
    .filter(({ id }) => model.clusters === undefined || model.clusters.includes(id))
    .flatMap((cluster) =>
      cluster.pools.flatMap((pool) =>
        recipe.engines
          .filter((engine) => fits(engine, pool, cluster))
          .map((engine) => ({ cluster, pool, recipe, engine })),
      ),
    );
}

/**
 * True if the engine can run in the pool. On idle agents, it needs a template and gets all GPUs of an agent. As a job,
 * it needs a command.
 */
function fits(engine: EngineConfig, pool: PoolConfig, { launcher }: ClusterConfig): boolean {
  if (!runsOn(engine, pool.gpu) || (launcher === 'agents') !== (engine.template !== undefined)) return false;
  return launcher === 'agents' ? engine.gpus === pool.gpus_per_node : engine.gpus <= pool.gpus_per_node;
}

/** True if the engine runs on this GPU. `NVIDIA H100 80GB HBM3`, `h100` and `H100` are the same kind. */
export function runsOn(engine: EngineConfig, gpu: string): boolean {
  const kind = gpuClass(gpu);
  return engine.gpu.some((one) => gpuClass(one) === kind);
}
