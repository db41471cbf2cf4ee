/**
 * Reads the plan of `otela-plan`: the output of `plan --json`, the file of `watch --plan`, or a file of `regions
 * --warm`. The file is read again when it changes.
 */
import { readFileSync, statSync } from 'node:fs';
import * as z from 'zod';
import type { ModelDemand } from '../../shared/factory/factory-exchange.ts';
import { errorLine } from '../factory-error.ts';
import {
  type DemandReading,
  type DemandSource,
  noDemand,
  type PlannedShape,
  type PlannedShapes,
} from './demand-source.ts';

const FILE_MAX_BYTES = 16 * 1024 * 1024;
/**
 * Maximum placements of a plan. A plan may cover all clusters of an installation; the factory uses only those of its
 * models.
 */
const PLACEMENTS_MAX = 100_000;
const FROM = 'the plan';

const degree = z.number().int().positive();
const placementSchema = z.object({
  model: z.string(),
  replicas: z.number().int().nonnegative().max(10_000),
  /** GPU class. */
  gpu: z.string().max(64).optional(),
  tp: degree.optional(),
  /**
   * Parallelism of the engine in addition to `tp`. `tp` in it is ignored, and the factory supports no other member than
   * `pp`.
   */
  spread: z.looseObject({ tp: degree.optional(), pp: degree.optional() }).optional(),
});
const placementsSchema = z.array(placementSchema).max(PLACEMENTS_MAX);
const planSchema = z.union([
  z.object({ wave: degree.default(1), placements: placementsSchema }),
  // The format of `otela-plan regions --warm`.
  z.object({ wanted: placementsSchema }).transform(({ wanted }) => ({ wave: 1, placements: wanted })),
]);
type PlannedReplicas = z.infer<typeof placementSchema>;

interface PlanFileOptions {
  path: string;
  /** Maximum age of the file in milliseconds. A plan must not hold GPUs forever if its planner has died. */
  maxAge: number;
  /** Ids of the factory's models. */
  models: readonly string[];
  /** Called when a problem with the file begins or changes. */
  note(text: string): void;
}

export class PlanFile implements DemandSource {
  readonly #options: PlanFileOptions;
  /** Wanted replicas by model; empty if the file is missing or unreadable. */
  #wanted = new Map<string, number>();
  #planned = new Map<string, PlannedShapes>();
  #writtenAt = 0;
  #stamp = '';
  /** The text of each current problem. A plan may be both unreadable and too old. */
  readonly #problems = { unreadable: '', old: '' };

  constructor(options: PlanFileOptions) {
    this.#options = options;
  }

  latest(now: number): DemandReading {
    this.#poll();
    const { path, maxAge } = this.#options;
    const left = maxAge - (now - this.#writtenAt);
    const old = this.#wanted.size > 0 && left <= 0;
    this.#logProblem(
      'old',
      old ? `${path} is too old to follow: it was written ${new Date(this.#writtenAt).toISOString()}` : '',
    );
    if (old) return { demand: new Map(), nodes: undefined };
    const demand = [...this.#wanted].map(([model, replicas]): [string, ModelDemand] => [
      model,
      { ...noDemand(model), wanted: [{ from: FROM, replicas, for_ms: left }] },
    ]);
    return { demand: new Map(demand), nodes: undefined, planned: this.#planned };
  }

  #poll(): void {
    const { path } = this.#options;
    let problem = '';
    try {
      const { mtimeMs, size, ino } = statSync(path);
      const stamp = `${mtimeMs} ${size} ${ino}`;
      if (stamp !== this.#stamp) this.#read(path, stamp, size, mtimeMs);
    } catch (error) {
      // The file was deleted, so the plan no longer applies.
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT')
        [this.#wanted, this.#planned, this.#stamp] = [new Map(), new Map(), ''];
      // A file that is being written is complete in the next round. Until then the previous plan applies until its
      // `maxAge`.
      problem = `the plan ${path} cannot be read: ${errorLine(error)}`;
    }
    this.#logProblem('unreadable', problem);
  }

  #read(path: string, stamp: string, size: number, mtimeMs: number): void {
    if (size > FILE_MAX_BYTES) throw new Error(`larger than ${FILE_MAX_BYTES} bytes`);
    const read = planSchema.safeParse(JSON.parse(readFileSync(path, 'utf8')));
    if (!read.success) throw new Error('not a plan of otela-plan');
    const ours = this.#ours(read.data.placements);
    const replicas = (all: readonly PlannedReplicas[]) => all.reduce((sum, one) => sum + one.replicas, 0);
    this.#wanted = new Map([...ours].map(([model, all]) => [model, replicas(all)]));
    this.#planned = new Map(
      [...ours].flatMap(([model, all]) => {
        const shapes = all.flatMap((one) => shapeOf(one) ?? []);
        return shapes.length < all.length ? [] : [[model, { shapes, wave: read.data.wave }] as const];
      }),
    );
    this.#writtenAt = mtimeMs;
    this.#stamp = stamp;
  }

  /** Returns the placements of this factory's models. A plan may name a model by only the last part of its id. */
  #ours(plan: readonly PlannedReplicas[]): Map<string, PlannedReplicas[]> {
    const ours = new Map<string, PlannedReplicas[]>();
    for (const one of plan) {
      const id = this.#options.models.find(
        (name) => name === one.model || name.endsWith(`/${one.model}`) || one.model.endsWith(`/${name}`),
      );
      if (id !== undefined) ours.set(id, [...(ours.get(id) ?? []), one]);
    }
    return ours;
  }

  #logProblem(kind: 'unreadable' | 'old', problem: string): void {
    if (problem === this.#problems[kind]) return;
    this.#problems[kind] = problem;
    if (problem !== '') this.#options.note(problem);
  }
}

/** Returns undefined if the placement names no shape, or a parallelism that the factory does not support. */
function shapeOf({ gpu, tp, spread, replicas }: PlannedReplicas): PlannedShape | undefined {
  const { tp: _, pp = 1, ...further } = spread ?? { tp };
  const isKnown = Object.values(further).every((degree) => degree === 1 || degree === false);
  return tp === undefined || !isKnown ? undefined : { gpu, tp, pp, replicas };
}
