import { TASK_TYPES } from '../../world/tasks.ts';
import { capacities } from '../paper-transport.ts';
import { DEFAULT_WEIGHTS, type MacroInput } from '../problem.ts';

const TYPES = TASK_TYPES.length;
/** Number of past slots. Their mean is the history H of the paper's state. */
const HISTORY_SLOTS = 5;
/** Number of features of an entry, which is a pair of origin and region. */
export const FEATURES = 16;

/** Shares by origin and region: means over the types of task. `shares`: by origin and type, and region. */
export function byOrigin(shares: Float64Array, regions: number): Float64Array {
  const means = new Float64Array(regions ** 2);
  for (let at = 0; at < shares.length; at++) {
    const entry = Math.floor(at / regions / TYPES) * regions + (at % regions);
    means[entry] = (means[entry] ?? 0) + (shares[at] ?? 0) / TYPES;
  }
  return means;
}

/** Tasks of each origin in the last slots. */
export class ArrivalHistory {
  readonly #slots: number[][] = [];

  observe(arrived: readonly number[]): void {
    this.#slots.push([...arrived]);
    if (this.#slots.length > HISTORY_SLOTS) this.#slots.shift();
  }

  mean(origin: number): number {
    return this.#slots.reduce((sum, line) => sum + (line[origin] ?? 0), 0) / Math.max(1, this.#slots.length);
  }
}

/**
 * The state of the paper's decision process, entry by entry, so that a small network serves any number of regions:
 * use U, backlog Q, latencies L, prices, history H, forecast F and the last shares A, beside the share that the QP plans.
 * `planned` and `previous`: by origin and region.
 */
export function stateOf(
  input: MacroInput,
  planned: Float64Array,
  previous: Float64Array,
  history: ArrivalHistory,
): Float64Array {
  const { world, demand, prices, backlogS, use, slotS, arrived, ahead } = input;
  const regions = demand.length;
  const total = (line: readonly number[] | undefined) => (line ?? []).reduce((sum, count) => sum + count, 0);
  const tasks = demand.map(total);
  const next = (ahead ?? demand).map(total);
  const came = (arrived ?? demand).map(total);
  const rooms = capacities(input).map((servers) => Math.max(1, servers * slotS));
  const work = tasks.map((count) => count * DEFAULT_WEIGHTS.meanWorkS);
  const [meanTasks, meanRoom, meanPrice] = [tasks, rooms, prices].map((all) => Math.max(1e-6, total(all) / regions));
  const load = rooms.map(
    (room, to) => work.reduce((sum, own, i) => sum + own * (planned[i * regions + to] ?? 0), 0) / room,
  );
  const trend = next.map((count, r) => Math.log((count + 1) / (history.mean(r) + 1)));
  const surprise = came.map((count, r) => (count - history.mean(r)) / Math.sqrt(history.mean(r) + 1));
  const all = total(work) / total(rooms);
  const state = new Float64Array(regions ** 2 * FEATURES);
  for (let i = 0; i < regions; i++)
    for (let j = 0; j < regions; j++) {
      const entry = i * regions + j;
      const share = planned[entry] ?? 0;
      const latency = world.topology.latencyS[i]?.[j] ?? Number.POSITIVE_INFINITY;
      const values = [
        10 * latency,
        i === j ? 1 : 0,
        use[j] ?? 0,
        (4 * (backlogS[j] ?? 0)) / (rooms[j] ?? 1),
        Math.log((rooms[j] ?? 1) / (meanRoom ?? 1)),
        (prices[j] ?? 0) / (meanPrice ?? 1) - 1,
        Math.log((tasks[i] ?? 0) / (meanTasks ?? 1) + 0.01),
        trend[i] ?? 0,
        trend[j] ?? 0,
        (load[j] ?? 0) - 1,
        share,
        Math.log(share + 0.01) / 4,
        (previous[entry] ?? 0) - share,
        (work[j] ?? 0) / (rooms[j] ?? 1) - 1,
        all - 0.5,
        (surprise[j] ?? 0) / 3,
      ];
      for (const [f, value] of values.entries()) state[entry * FEATURES + f] = Math.min(3, Math.max(-3, value));
    }
  return state;
}

/** State of a row for the critic: means of its entries, weighted by the planned shares. */
export function rowState(state: Float64Array, planned: Float64Array, row: number, regions: number): Float64Array {
  const mean = new Float64Array(FEATURES);
  for (let j = 0; j < regions; j++) {
    const entry = row * regions + j;
    for (let f = 0; f < FEATURES; f++)
      mean[f] = (mean[f] ?? 0) + (planned[entry] ?? 0) * (state[entry * FEATURES + f] ?? 0);
  }
  return mean;
}
