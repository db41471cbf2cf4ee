/** Finds requirements that no cluster of the file can meet. Each problem names the nearest possible value. */
import { timeLimitMs } from '../../node/batch-systems/time-limit.ts';
import { FUNCTIONS_MODEL } from '../../shared/batch/function-context.ts';
import { findGpuClass, GPU_CLASSES, gpuClass } from '../../shared/hardware/gpu-classes.ts';
import { nearestName } from '../../shared/text/nearest-name.ts';
import { parseSource } from '../../shared/weights/weights-source.ts';
import { placementsOf, runsOn } from './model-placements.ts';
import type { ClusterConfig, FactoryConfig, ModelConfig, RecipeConfig } from './schema.ts';
import { formatMs } from './value-schemas.ts';

interface ConfigProblem {
  /** Path of the invalid value in the file. */
  path: (string | number)[];
  text: string;
}

export function findProblems(config: FactoryConfig): ConfigProblem[] {
  return [
    ...config.clusters.flatMap(clusterProblems),
    ...[...config.recipes].flatMap(([name, recipe]) => recipeProblems(name, recipe, config)),
    ...config.models.flatMap((model) => modelProblems(model, config)),
    ...shared(config.models),
    ...agentsProblems(config),
  ];
}

const didYouMean = (name: string, known: readonly string[]) => {
  const meant = nearestName(name, known);
  return meant === undefined ? `there are ${known.join(', ') || 'none'}` : `did you mean ${meant}?`;
};

function clusterProblems(cluster: ClusterConfig): ConfigProblem[] {
  const path = ['clusters', cluster.id];
  const found: ConfigProblem[] = [];
  if (cluster.launcher === 'kubernetes')
    for (const key of ['server', 'namespace', 'token_file'] as const)
      if (cluster[key] === undefined) found.push({ path, text: `clusters.${cluster.id}: kubernetes needs ${key}` });
  if (cluster.launcher === 'agents' && cluster.key_file === undefined)
    found.push({ path, text: `clusters.${cluster.id}: idle agents need key_file, an operator's key` });
  if (cluster.transfer_files !== undefined && cluster.launcher !== 'htcondor')
    found.push({
      path: [...path, 'transfer_files'],
      text: `clusters.${cluster.id}: transfer_files is for htcondor: with ${cluster.launcher}, install the files on the nodes`,
    });
  for (const [n, pool] of cluster.pools.entries()) {
    if (cluster.pools.findIndex(({ name, gpu }) => name === pool.name && gpu === pool.gpu) !== n)
      found.push({
        path: [...path, 'pools', n],
        text: `clusters.${cluster.id}: there are two pools ${pool.name} with ${pool.gpu}`,
      });
    if (pool.gpus !== undefined && pool.gpus < pool.gpus_per_node)
      found.push({
        path: [...path, 'pools', n, 'gpus'],
        text: `pool ${pool.name} has ${pool.gpus} GPUs, but ${pool.gpus_per_node} on each node: gpus is the number on all nodes`,
      });
  }
  return found;
}

function recipeProblems(name: string, recipe: RecipeConfig, config: FactoryConfig): ConfigProblem[] {
  const pools = config.clusters.flatMap(({ pools: own }) => own);
  return recipe.engines.flatMap((engine, n) => {
    const path = ['recipes', name, 'engines', n];
    const found: ConfigProblem[] = [];
    const needsImage = config.clusters.some(
      ({ launcher, pools: own }) => launcher === 'kubernetes' && own.some((pool) => runsOn(engine, pool.gpu)),
    );
    if (needsImage && engine.image === undefined)
      found.push({ path, text: `an engine of recipe ${name} may run on Kubernetes but has no image` });
    const { allow_functions: owners, command, template } = engine;
    const kinds = [engine.engine, command, template, owners].filter((one) => one !== undefined);
    if (kinds.length === 0)
      found.push({ path, text: `an engine of recipe ${name} has no engine, command, template or allow_functions` });
    if (
      owners !== undefined &&
      (kinds.length > 1 || engine.container !== 'none' || engine.packed_environment !== undefined)
    )
      found.push({
        path,
        text: `recipe ${name} has allow_functions: its jobs run no engine, so it cannot have engine, command, template, container or packed_environment`,
      });
    if (owners === undefined && recipe.weights === '')
      found.push({ path: ['recipes', name], text: `recipe ${name} has no weights` });
    if (engine.command !== undefined && !engine.command.some((part) => part.includes('{{port}}')))
      found.push({
        path: [...path, 'command'],
        text: `the command of recipe ${name} must contain {{port}}: other jobs on the same node may use any fixed port`,
      });
    if (needsImage && engine.image !== undefined && parseSource(engine.image) !== undefined)
      found.push({
        path,
        text: `an engine of recipe ${name} may run on Kubernetes, which pulls images only from a registry`,
      });
    if (engine.container !== 'none' && engine.packed_environment !== undefined)
      found.push({
        path,
        text: `an engine of recipe ${name} runs in ${engine.container}, but packed_environment works only without a container`,
      });
    if (engine.container === 'edf' && parseSource(engine.image ?? '') !== undefined)
      found.push({
        path,
        text: `an engine of recipe ${name} has an image that the agent would pull, but edf needs a file`,
      });
    const foreign = config.clusters.find(
      ({ launcher, pools: own }) => launcher !== 'slurm' && own.some((pool) => runsOn(engine, pool.gpu)),
    );
    if (engine.container === 'edf' && foreign !== undefined)
      found.push({
        path,
        text: `an engine of recipe ${name} runs in edf, a plugin of Slurm, but may run on ${foreign.id} (${foreign.launcher})`,
      });
    if (engine.container !== 'none' && engine.image === undefined)
      found.push({ path, text: `an engine of recipe ${name} runs in ${engine.container} but has no image` });
    for (const [i, gpu] of engine.gpu.entries())
      if (findGpuClass(gpuClass(gpu)) === undefined && !pools.some((pool) => runsOn(engine, pool.gpu)))
        found.push({
          path: [...path, 'gpu', i],
          text: `there is no GPU ${gpu}; ${didYouMean(
            gpu,
            GPU_CLASSES.map((one) => one.name),
          )}`,
        });
    return found;
  });
}

function modelProblems(model: ModelConfig, config: FactoryConfig): ConfigProblem[] {
  const path = ['models', model.id];
  const recipe = config.recipes.get(model.recipe);
  if (recipe === undefined)
    return [
      {
        path: [...path, 'recipe'],
        text: `${model.id}: there is no recipe ${model.recipe}; ${didYouMean(model.recipe, [...config.recipes.keys()])}`,
      },
    ];
  const isOfFunctions = recipe.engines.some((engine) => engine.allow_functions !== undefined);
  if (isOfFunctions !== (model.id === FUNCTIONS_MODEL))
    return [
      { path: [...path, 'recipe'], text: `a recipe with allow_functions belongs to [models."${FUNCTIONS_MODEL}"]` },
    ];
  const names = config.clusters.map(({ id }) => id);
  const strange = (model.clusters ?? []).filter((name) => !names.includes(name));
  if (strange.length > 0)
    return strange.map((name) => ({
      path: [...path, 'clusters'],
      text: `${model.id}: there is no cluster ${name}; ${didYouMean(name, names)}`,
    }));
  const found: ConfigProblem[] = [];
  if (model.min > model.max)
    found.push({ path: [...path, 'min'], text: `${model.id}: min ${model.min} is above max ${model.max}` });
  for (const [n, { jobs }] of model.warm.entries())
    if (jobs > model.max)
      found.push({ path: [...path, 'warm', n], text: `${model.id}: ${jobs} warm jobs are above max ${model.max}` });
  const places = placementsOf(config, model);
  if (places.length === 0) return [...found, { path, text: nowhere(model, recipe, config) }];
  const room = places.reduce((sum, { cluster, engine, pool }) => {
    const gpus = Math.min(cluster.max_gpus ?? Number.POSITIVE_INFINITY, pool.gpus ?? Number.POSITIVE_INFINITY);
    return sum + Math.min(cluster.max_jobs, Math.floor(gpus / engine.gpus));
  }, 0);
  const most = Math.min(room, config.guest.max_jobs);
  if (most < Math.max(1, model.min))
    found.push({
      path: [...path, 'min'],
      text: `${model.id}: the limits of its clusters allow ${most} jobs, but min is ${model.min}`,
    });
  if (!places.some(({ pool }) => (timeLimitMs(pool.time) ?? 0) > recipe.load)) {
    const longest = Math.max(...places.map(({ pool }) => timeLimitMs(pool.time) ?? 0));
    found.push({
      path: ['recipes', model.recipe, 'load'],
      text: `${model.id}: it loads for ${formatMs(recipe.load)}, but its longest job ends after ${formatMs(longest)}`,
    });
  }
  return found;
}

/** Explains why no engine of the recipe fits a pool, and names the nearest one. */
function nowhere(model: ModelConfig, recipe: RecipeConfig, config: FactoryConfig): string {
  const clusters = config.clusters.filter(({ id }) => model.clusters?.includes(id) ?? true);
  const pools = clusters.flatMap((cluster) =>
    cluster.pools.map((pool) => ({ pool, where: `${cluster.id}/${pool.name}` })),
  );
  const kinds = recipe.engines.flatMap((engine) =>
    pools.filter(({ pool }) => runsOn(engine, pool.gpu)).map((one) => ({ ...one, engine })),
  );
  const [near] = kinds.sort((a, b) => b.pool.gpus_per_node - a.pool.gpus_per_node);
  if (near !== undefined)
    return `${model.id}: its engine needs ${near.engine.gpus} GPUs on one node; the closest pool is ${near.where} with ${near.pool.gpus_per_node}`;
  const wanted = [...new Set(recipe.engines.flatMap(({ gpu }) => gpu))].join(', ');
  const there = pools.map(({ pool, where }) => `${pool.gpu} (${where})`).join(', ');
  return `${model.id}: recipe ${model.recipe} has engines for ${wanted}; the pools have ${there || 'no GPUs'}`;
}

/** Maximum characters of a factory's name: a deployment's id contains the name and has at most 63 characters. */
const FACTORY_MAX_CHARS = 32;

/**
 * Finds problems with idle agents. A node reports its deployment but not its cluster, so there can be only one cluster
 * of idle agents.
 */
function agentsProblems({ factory, clusters }: FactoryConfig): ConfigProblem[] {
  const [first, second] = clusters.filter(({ launcher }) => launcher === 'agents');
  if (first === undefined) return [];
  const found: ConfigProblem[] = [];
  if (second !== undefined)
    found.push({
      path: ['clusters', second.id],
      text: `${first.id} already has the idle agents: move all pools to it`,
    });
  if (factory.length > FACTORY_MAX_CHARS)
    found.push({
      path: ['factory'],
      text: `a factory with idle agents must have a name of at most ${FACTORY_MAX_CHARS} characters`,
    });
  return found;
}

/**
 * Finds models that share a recipe. An engine serves one model's name, so a second model would get jobs that do not
 * serve it.
 */
function shared(models: readonly ModelConfig[]): ConfigProblem[] {
  return models.flatMap((model, n) => {
    const first = models.findIndex(({ recipe }) => recipe === model.recipe);
    const other = models[first];
    if (first === n || other === undefined) return [];
    return [
      {
        path: ['models', model.id, 'recipe'],
        text: `${model.id} and ${other.id} have the same recipe; give ${other.id} an alias at the gateway, or give ${model.id} its own recipe`,
      },
    ];
  });
}
