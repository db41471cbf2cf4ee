/** Compares a model's jobs on idle agents with the shapes of a plan: kinds of GPU and parallelisms. */
import { gpuClass } from '../../shared/hardware/gpu-classes.ts';
import type { EngineConfig } from '../config/schema.ts';
import type { PlannedShape } from '../demand/demand-source.ts';
import { allPlaces, type FactoryWorld, type PlacedEngine, type PlacedModel } from './factory-world.ts';
import { type CountedJob, isPending, type JobCensus } from './job-census.ts';

/** A shape that has fewer jobs than the plan wants. */
interface MissingShape {
  places: readonly PlacedEngine[];
  count: number;
}

interface ShapeDifference {
  missing: MissingShape[];
  /**
   * Jobs on idle agents that the plan does not want, because it has no such shape or wants fewer jobs of it. They end
   * in this order.
   */
  surplus: CountedJob[];
}

/** Returns undefined if no plan names shapes for the model, or if the file has no place for one of the shapes. */
export function shapeDifference(
  placed: PlacedModel,
  { jobs, coming }: Pick<JobCensus, 'jobs' | 'coming'>,
  world: Pick<FactoryWorld, 'planned'>,
): ShapeDifference | undefined {
  const shapes = world.planned?.get(placed.model.id)?.shapes;
  if (shapes === undefined) return undefined;
  const onAgents = allPlaces(placed).filter(({ cluster }) => cluster.launcher === 'agents');
  const isHere = (job: CountedJob) =>
    job.model === placed.model.id && job.asked === undefined && onAgents.some((place) => isAt(place, job));
  const left = new Set(jobs.filter(isHere));
  const missing: MissingShape[] = [];
  for (const shape of shapes) {
    const places = onAgents.filter((place) => isOfShape(place, shape));
    if (places.length === 0) return undefined;
    const own = [...left].filter((job) => places.some((place) => isAt(place, job))).slice(0, shape.replicas);
    for (const job of own) left.delete(job);
    const soon = coming.filter((one) => one.model === placed.model.id && places.some((place) => isAt(place, one)));
    const count = shape.replicas - own.length - soon.reduce((sum, one) => sum + one.count, 0);
    if (count > 0) missing.push({ places, count });
  }
  const idle = (job: CountedJob) => job.node?.idle_ms ?? 0;
  const order = (job: CountedJob) => (isPending(job) ? 0 : job.state === 'ready' ? 2 : 1);
  return { missing, surplus: [...left].sort((a, b) => order(a) - order(b) || idle(b) - idle(a)) };
}

const isAt = (
  { cluster, pool, context }: PlacedEngine,
  one: { cluster: string; pool?: string | undefined; context: string },
): boolean => one.cluster === cluster.id && one.pool === pool.name && one.context === context;

function isOfShape({ pool, engine }: PlacedEngine, { gpu, tp, pp }: PlannedShape): boolean {
  const own = engineShape(engine);
  return own.tp === tp && own.pp === pp && (gpu === undefined || gpuClass(pool.gpu) === gpuClass(gpu));
}

/** Reads the parallelism from the template's parameters `tp` and `pp`. If `tp` is absent, it is the number of GPUs. */
function engineShape({ gpus, parameters }: EngineConfig): { tp: number; pp: number } {
  const pp = typeof parameters.pp === 'number' ? parameters.pp : 1;
  return { pp, tp: typeof parameters.tp === 'number' ? parameters.tp : gpus / pp };
}
