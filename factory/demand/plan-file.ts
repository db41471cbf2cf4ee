/**
 * The plan of `otela-plan`: the output of `plan --json`, the file of `watch --plan`, or the state of `watch
 * --forecast`. Read again if it changes.
 */
import { readFileSync, statSync } from 'node:fs';
import * as z from 'zod';
import type { ModelDemand } from '../../shared/factory/exchange.ts';
import { errorLine } from '../errors.ts';
import { type DemandReading, type DemandSource, noDemand } from './demand-source.ts';

const FILE_MAX_BYTES = 16 * 1024 * 1024;
/** Bounds a plan for all clusters of an installation; the factory uses only its models' placements. */
const PLACEMENTS_MAX = 100_000;
const FROM = 'the plan';

const placements = z
  .array(z.object({ model: z.string(), replicas: z.number().int().nonnegative().max(10_000) }))
  .max(PLACEMENTS_MAX);
const planSchema = z
  .union([z.object({ placements }), z.object({ wanted: placements })])
  .transform((plan) => ('placements' in plan ? plan.placements : plan.wanted));

export interface PlanFileOptions {
  path: string;
  /** ms since the file was written: the plan of a planner that died must not hold GPUs forever. */
  maxAge: number;
  /** Ids of the factory's models. */
  models: readonly string[];
  /** Called when a problem begins or changes. */
  note(text: string): void;
}

export class PlanFile implements DemandSource {
  readonly #options: PlanFileOptions;
  /** Replicas by model, while the file exists and is readable. */
  #wanted = new Map<string, number>();
  #writtenAt = 0;
  #stamp = '';
  /** The text of each problem that persists. A plan may be both unreadable and too old. */
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
      old ? `${path} is too old to be followed: written ${new Date(this.#writtenAt).toISOString()}` : '',
    );
    if (old) return { demand: new Map(), nodes: undefined };
    const demand = [...this.#wanted].map(([model, replicas]): [string, ModelDemand] => [
      model,
      { ...noDemand(model), wanted: [{ from: FROM, replicas, for_ms: left }] },
    ]);
    return { demand: new Map(demand), nodes: undefined };
  }

  #poll(): void {
    const { path } = this.#options;
    let problem = '';
    try {
      const { mtimeMs, size, ino } = statSync(path);
      const stamp = `${mtimeMs} ${size} ${ino}`;
      if (stamp !== this.#stamp) this.#read(path, stamp, size, mtimeMs);
    } catch (error) {
      // Removed: the plan no longer applies.
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT')
        [this.#wanted, this.#stamp] = [new Map(), ''];
      // A file that is being written is complete at the next round. Until then the previous plan applies, and it ages.
      problem = `the plan ${path} cannot be read: ${errorLine(error)}`;
    }
    this.#logProblem('unreadable', problem);
  }

  #read(path: string, stamp: string, size: number, mtimeMs: number): void {
    if (size > FILE_MAX_BYTES) throw new Error(`larger than ${FILE_MAX_BYTES} bytes`);
    const read = planSchema.safeParse(JSON.parse(readFileSync(path, 'utf8')));
    if (!read.success) throw new Error('neither a plan nor the state of otela-plan');
    this.#wanted = this.#ours(read.data);
    this.#writtenAt = mtimeMs;
    this.#stamp = stamp;
  }

  /** A planner's catalogue may name a model by only the last part of its id. */
  #ours(plan: z.infer<typeof planSchema>): Map<string, number> {
    const wanted = new Map<string, number>();
    for (const { model, replicas } of plan) {
      const id = this.#options.models.find(
        (one) => one === model || one.endsWith(`/${model}`) || model.endsWith(`/${one}`),
      );
      if (id !== undefined) wanted.set(id, (wanted.get(id) ?? 0) + replicas);
    }
    return wanted;
  }

  #logProblem(kind: 'unreadable' | 'old', problem: string): void {
    if (problem === this.#problems[kind]) return;
    this.#problems[kind] = problem;
    if (problem !== '') this.#options.note(problem);
  }
}
