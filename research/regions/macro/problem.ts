import type { TransportProblem } from '../../../scheduler/regions/smooth-transport.ts';
import { TASK_TYPES } from '../world/tasks.ts';
import type { World } from '../world/world.ts';

/** What a macro planner may know when a slot begins. */
export interface MacroInput {
  world: World;
  /** Expected tasks of the slot by `[origin][type]`. */
  demand: readonly (readonly number[])[];
  /** Servers that could serve, awake or asleep, by `[region][kind]`. */
  servers: readonly (readonly number[])[];
  /** Usable prices, USD per kWh by region. */
  prices: readonly number[];
  /** Seconds of work that wait in each region. */
  backlogS: readonly number[];
  /** Busy share of the servers of each region in the last slot. */
  use: readonly number[];
  slotS: number;
  /** Tasks of the previous slot, and expected tasks of the slot after this one, by `[origin][type]`; absent: unknown. */
  arrived?: readonly (readonly number[])[];
  ahead?: readonly (readonly number[])[];
  /** Electricity of the previous slot, USD; absent: not measured. */
  costUsd?: number | undefined;
  /** Shares of the previous slot, as `MacroPlan.shares`. */
  previous: Float64Array | undefined;
}

/** Target shares of tasks. */
export interface MacroPlan {
  /** `shares[(origin * types + type) * regions + region]`; rows sum to 1. */
  shares: Float64Array;
  planner: string;
  /** Why it is not the requested plan; absent: it is. */
  note?: string;
}

export interface MacroPlanner {
  readonly name: string;
  plan(input: MacroInput): MacroPlan | Promise<MacroPlan>;
}

/** Weights of a planner. */
export interface MacroWeights {
  /** Seconds of response that a saved US dollar is worth. */
  secondsPerUsd: number;
  /** Share of a server's time that a plan may use; above it tasks queue. */
  useMax: number;
  /** Price of a change of shares, seconds (λ). */
  smoothness: number;
  /** Mean seconds of a task on an A100. */
  meanWorkS: number;
}

export const DEFAULT_WEIGHTS: MacroWeights = { secondsPerUsd: 10_000, useMax: 0.9, smoothness: 0.5, meanWorkS: 12.5 };

const TYPES = TASK_TYPES.length;
const JOULES_PER_KWH = 3.6e6;
const BUSY = 4;

/** USD of one task of the type on a server of the kind. */
export function taskUsd(world: World, kind: number, seconds: number, price: number): number {
  return ((world.kinds[kind]?.watts[BUSY] ?? 0) * seconds * price) / JOULES_PER_KWH;
}

/** True if servers of the kind can hold any model of the type. */
export function takesType(world: World, kind: number, type: number): boolean {
  return world.models.some(
    (model, m) => model.type === type && Number.isFinite(world.switchS[kind]?.[m] ?? Number.POSITIVE_INFINITY),
  );
}

/**
 * Rows: origin and type. Columns: region and kind of server, which separates the cost of a slow GPU from the capacity
 * of a fast one. A task costs its seconds (network both ways, computation) and its electricity.
 */
export function transportProblem(input: MacroInput, weights: MacroWeights): TransportProblem {
  const { world, demand, servers, prices, backlogS, slotS } = input;
  const [regions, kinds] = [world.topology.regions.length, world.kinds.length];
  const [rows, columns] = [regions * TYPES, regions * kinds];
  const cost = new Float64Array(rows * columns);
  const load = new Float64Array(rows * columns);
  const seconds = world.kinds.map(({ factor }) => factor.map((one) => one * weights.meanWorkS));
  for (let origin = 0; origin < regions; origin++) {
    for (let type = 0; type < TYPES; type++) {
      const first = (origin * TYPES + type) * columns;
      for (let region = 0; region < regions; region++) {
        const network = 2 * (world.topology.latencyS[origin]?.[region] ?? Number.POSITIVE_INFINITY);
        for (let kind = 0; kind < kinds; kind++) {
          const at = first + region * kinds + kind;
          const compute = seconds[kind]?.[type] ?? 0;
          const usd = taskUsd(world, kind, compute, prices[region] ?? 0);
          const there = (servers[region]?.[kind] ?? 0) > 0 && takesType(world, kind, type);
          cost[at] = there ? network + compute + weights.secondsPerUsd * usd : Number.POSITIVE_INFINITY;
          load[at] = compute;
        }
      }
    }
  }
  const capacity = new Float64Array(columns);
  for (let region = 0; region < regions; region++) {
    const total = (servers[region] ?? []).reduce((sum, count) => sum + count, 0);
    for (let kind = 0; kind < kinds; kind++) {
      const count = servers[region]?.[kind] ?? 0;
      const waiting = total > 0 ? ((backlogS[region] ?? 0) * count) / total : 0;
      capacity[region * kinds + kind] = Math.max(0, count * slotS * weights.useMax - waiting);
    }
  }
  const mass = new Float64Array(rows);
  for (let row = 0; row < rows; row++) mass[row] = demand[Math.floor(row / TYPES)]?.[row % TYPES] ?? 0;
  return { rows, columns, mass, cost, load, capacity };
}

/** Sums shares by region and kind to shares by region. */
export function byRegion(shares: Float64Array, rows: number, regions: number, kinds: number): Float64Array {
  const summed = new Float64Array(rows * regions);
  for (let row = 0; row < rows; row++)
    for (let region = 0; region < regions; region++) {
      let sum = 0;
      for (let kind = 0; kind < kinds; kind++) sum += shares[(row * regions + region) * kinds + kind] ?? 0;
      summed[row * regions + region] = sum;
    }
  return summed;
}
