import { exponential, normal, type Random, seededRandom } from '../../../scheduler/simulator/random.ts';
import { TASK_TYPES, type Task } from '../world/tasks.ts';
import type { World } from '../world/world.ts';

/** Tasks in order of arrival. */
export interface TaskSource {
  next(): Task | undefined;
  /** Mean number of tasks of a slot, `[origin][model]`: the output of a perfect forecaster. */
  expected(slot: number): number[][];
}

export interface Surge {
  fromSlot: number;
  toSlot: number;
  /** Arrivals are multiplied by this. */
  factor: number;
  /** absent: all regions. */
  regions?: readonly number[];
}

export interface WorkloadOptions {
  slots: number;
  slotS: number;
  seed: number;
  /** Share of the arrivals that servers could serve on average if each serves only its type. */
  load: number;
  surges?: readonly Surge[];
}

/** Slots and seconds of one slot of the paper: six hours. */
export const PAPER_SLOTS = 480;
export const SLOT_S = 45;
/**
 * Bounds of the uniform distribution of a task's seconds on an A100. The paper names the distribution but no bounds;
 * these give about its 19 s with round robin on Abilene.
 */
const WORK_S = [5, 20] as const;
/** Calibrated: waits of baselines below 2 s, as in the paper's Figure 11. */
export const DEFAULT_LOAD = 0.55;
/** A client gives up after a wait of this long. */
const PATIENCE_S = [60, 120] as const;
/** Synthetic: half a day is compressed into a run, and regions peak in the order of their longitude. */
const SWING = 0.35;
const CYCLE_SLOTS = 480;
/** Noise of a region's rate: an autoregressive process of the logarithm, which a forecaster can partly follow. */
const NOISE = { keep: 0.9, deviation: 0.12 };
/** Share of tasks with a common beginning, and the number of beginnings of a region. */
const PREFIX_SHARE = 0.6;
const PREFIXES = 40;

/** Arrivals per second that the servers could serve if each serves only its type. */
export function staticCapacity(world: World): number {
  const meanWorkS = (WORK_S[0] + WORK_S[1]) / 2;
  return Math.min(
    ...TASK_TYPES.map((made, type) => {
      const speed = world.servers.reduce((sum, { kind }) => {
        const of = world.kinds[kind];
        return of?.made === made ? sum + 1 / (of.factor[type] ?? 1) : sum;
      }, 0);
      const share = world.models.reduce((sum, one) => (one.type === type ? sum + one.share : sum), 0);
      return speed / meanWorkS / share;
    }),
  );
}

/** Poisson arrivals; rates by region and slot with daily swing, noise and surges. */
export class PoissonTasks implements TaskSource {
  readonly #world: World;
  readonly #options: WorkloadOptions;
  readonly #random: Random;
  /** Tasks per second, `[slot][origin]`. */
  readonly #rates: number[][];
  readonly #totals: number[];
  #nowS = 0;
  #count = 0;

  constructor(world: World, options: WorkloadOptions) {
    this.#world = world;
    this.#options = options;
    this.#random = seededRandom(options.seed);
    this.#rates = drawRates(world, options);
    this.#totals = this.#rates.map((line) => line.reduce((sum, rate) => sum + rate, 0));
  }

  expected(slot: number): number[][] {
    const { slotS } = this.#options;
    return this.#world.topology.regions.map((_, origin) =>
      this.#world.models.map(({ share }) => (this.#rates[slot]?.[origin] ?? 0) * slotS * share),
    );
  }

  next(): Task | undefined {
    const { slots, slotS } = this.#options;
    for (;;) {
      const slot = Math.floor(this.#nowS / slotS);
      if (slot >= slots) return undefined;
      const total = this.#totals[slot] ?? 0;
      const next = total > 0 ? this.#nowS + exponential(this.#random, 1 / total) : Number.POSITIVE_INFINITY;
      const ends = (slot + 1) * slotS;
      // Arrivals of a Poisson process have no memory: at the slot's end it restarts with the next rate.
      if (next < ends) {
        this.#nowS = next;
        return this.#draw(slot, next);
      }
      this.#nowS = ends;
    }
  }

  #draw(slot: number, arrivalS: number): Task {
    const random = this.#random;
    const origin = pick(this.#rates[slot] ?? [], random() * (this.#totals[slot] ?? 0));
    const { models } = this.#world;
    let [model, left] = [0, random()];
    for (const [index, one] of models.entries()) {
      model = index;
      left -= one.share;
      if (left <= 0) break;
    }
    return {
      id: this.#count++,
      origin,
      model,
      type: models[model]?.type ?? 0,
      workS: WORK_S[0] + (WORK_S[1] - WORK_S[0]) * random(),
      arrivalS,
      deadlineS: arrivalS + PATIENCE_S[0] + (PATIENCE_S[1] - PATIENCE_S[0]) * random(),
      // Squared: few beginnings are frequent, many are rare.
      prefix: random() < PREFIX_SHARE ? (origin * 16 + model) * PREFIXES + Math.floor(PREFIXES * random() ** 2) : -1,
    };
  }
}

function pick(weights: readonly number[], at: number): number {
  let left = at;
  for (let index = 0; index < weights.length; index++) {
    left -= weights[index] ?? 0;
    if (left <= 0) return index;
  }
  return weights.length - 1;
}

function drawRates(world: World, { slots, seed, load, surges = [] }: WorkloadOptions): number[][] {
  const random = seededRandom(seed ^ 0x5bd1e995);
  const { regions } = world.topology;
  const weights = regions.map(() => Math.exp(0.4 * normal(random)));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const mean = load * staticCapacity(world);
  const eastwards = regions.map(({ at }) => at[0]).sort((a, b) => a - b);
  const phases = regions.map(({ at }) => eastwards.indexOf(at[0]) / regions.length);
  const noise = regions.map(() => 0);
  const { keep, deviation } = NOISE;
  return Array.from({ length: slots }, (_, slot) =>
    regions.map((_, r) => {
      noise[r] = keep * (noise[r] ?? 0) + deviation * Math.sqrt(1 - keep ** 2) * normal(random);
      const swing = 1 + SWING * Math.sin(2 * Math.PI * (slot / CYCLE_SLOTS - 0.5 * (phases[r] ?? 0)));
      const surge = surges.reduce(
        (factor, one) =>
          slot >= one.fromSlot && slot < one.toSlot && (one.regions?.includes(r) ?? true)
            ? factor * one.factor
            : factor,
        1,
      );
      return ((mean * (weights[r] ?? 0)) / total) * swing * Math.exp(noise[r] ?? 0) * surge;
    }),
  );
}
