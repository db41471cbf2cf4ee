import { DEFAULT_LOAD, PoissonTasks, SLOT_S } from '../../simulator/workload.ts';
import { plannablePrices } from '../../world/price.ts';
import { TASK_TYPES } from '../../world/tasks.ts';
import type { World } from '../../world/world.ts';
import { capacities, normalised, transportTarget } from '../paper-transport.ts';
import type { MacroInput } from '../problem.ts';

/** One slot of a training trace: the expected demand, and the optimal transport. */
export interface TraceSlot {
  /** Tasks by origin. */
  demand: Float64Array;
  target: Float64Array;
  prices: readonly number[];
}

/** Mean seconds of a task on one A100 equivalent of a region. */
const WORK_S = 12.5;
/** Watts of a busy A100 equivalent, only for the price of energy. */
const WATTS = 340;
const JOULES_PER_KWH = 3.6e6;

/** Demand of one seed with the teacher's shares, slot by slot: the teacher does not depend on the policy. */
export async function trace(world: World, seed: number, slots: number): Promise<TraceSlot[]> {
  const source = new PoissonTasks(world, { slots, slotS: SLOT_S, seed, load: DEFAULT_LOAD });
  const regions = world.topology.regions.length;
  const servers = countServers(world);
  const found: TraceSlot[] = [];
  for (let slot = 0; slot < slots; slot++) {
    const demand = source.expected(slot).map((line) => line.reduce((sum, count) => sum + count, 0));
    const prices = plannablePrices(world.prices, regions, slot * SLOT_S);
    const input: MacroInput = {
      world,
      demand: demand.map((count) => TASK_TYPES.map(() => count / TASK_TYPES.length)),
      servers,
      prices,
      backlogS: demand.map(() => 0),
      use: demand.map(() => 0),
      slotS: SLOT_S,
      previous: undefined,
    };
    found.push({ demand: Float64Array.from(demand), target: await transportTarget(input), prices });
  }
  return found;
}

export function countServers(world: World): number[][] {
  const counts = world.topology.regions.map(() => world.kinds.map(() => 0));
  for (const { region, kind } of world.servers) {
    const line = counts[region];
    if (line !== undefined) line[kind] = (line[kind] ?? 0) + 1;
  }
  return counts;
}

/**
 * Regions as fluid: work flows in by the shares, and each region drains its capacity. For training and for the
 * guarantee's constants.
 */
export class FluidRegions {
  readonly regions: number;
  /** Seconds of work that each region does in a slot. */
  readonly rooms: Float64Array;
  readonly #world: World;
  readonly backlogS: Float64Array;
  readonly use: Float64Array;

  constructor(world: World) {
    this.#world = world;
    this.regions = world.topology.regions.length;
    const worth = capacities({ world, servers: countServers(world) });
    this.rooms = Float64Array.from(worth, (servers) => servers * SLOT_S);
    this.backlogS = new Float64Array(this.regions);
    this.use = new Float64Array(this.regions);
  }

  /** ‖Q‖₁/Q_max: a region's backlog of more than a slot counts as full. */
  get queue(): number {
    let sum = 0;
    for (const [r, backlog] of this.backlogS.entries()) sum += Math.min(1, backlog / Math.max(1, this.rooms[r] ?? 0));
    return sum / this.regions;
  }

  step(shares: Float64Array, { demand }: TraceSlot): void {
    for (let to = 0; to < this.regions; to++) {
      let work = this.backlogS[to] ?? 0;
      for (const [from, count] of demand.entries()) work += count * (shares[from * this.regions + to] ?? 0) * WORK_S;
      const room = this.rooms[to] ?? 0;
      this.use[to] = room > 0 ? Math.min(1, work / room) : 0;
      this.backlogS[to] = Math.max(0, work - room);
    }
  }

  /** Mean response, seconds, and electricity, USD, of one slot with these shares. */
  costs(shares: Float64Array, { demand, prices }: TraceSlot): { response: number; power: number } {
    let [response, power, total] = [0, 0, 0];
    for (let to = 0; to < this.regions; to++) {
      let work = this.backlogS[to] ?? 0;
      for (const [from, count] of demand.entries()) work += count * (shares[from * this.regions + to] ?? 0) * WORK_S;
      const load = Math.min(0.95, work / Math.max(1, this.rooms[to] ?? 0));
      const delay = (WORK_S * load) / (1 - load) + Math.max(0, work - (this.rooms[to] ?? 0)) / 2;
      for (const [from, count] of demand.entries()) {
        const tasks = count * (shares[from * this.regions + to] ?? 0);
        total += tasks;
        response += tasks * (WORK_S + delay + 2 * (this.#world.topology.latencyS[from]?.[to] ?? 0));
        power += (tasks * WORK_S * WATTS * (prices[to] ?? 0)) / JOULES_PER_KWH;
      }
    }
    return { response: response / Math.max(1e-9, total), power };
  }
}

/** The policy's input; `servers` are the regions' capacities in A100s. */
export function stateOf(
  use: ArrayLike<number>,
  backlogS: ArrayLike<number>,
  rooms: ArrayLike<number>,
  demand: ArrayLike<number>,
  previous: Float64Array,
): Float64Array {
  const regions = demand.length;
  const state = new Float64Array(4 * regions + regions ** 2);
  const worth = normalised(Array.from(rooms));
  const wanted = normalised(Array.from(demand));
  for (let r = 0; r < regions; r++) {
    state[r] = use[r] ?? 0;
    state[regions + r] = Math.min(1, (backlogS[r] ?? 0) / Math.max(1, rooms[r] ?? 0));
    state[2 * regions + r] = (worth[r] ?? 0) * regions;
    state[3 * regions + r] = (wanted[r] ?? 0) * regions;
  }
  state.set(previous, 4 * regions);
  return state;
}

export const distance2 = (a: Float64Array, b: Float64Array): number => {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += ((a[i] ?? 0) - (b[i] ?? 0)) ** 2;
  return sum;
};
