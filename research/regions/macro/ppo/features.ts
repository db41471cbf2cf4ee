import { type ArrivalHistory, entryStates, FEATURES } from '../../../../scheduler/regions/learned/entry-state.ts';
import { TASK_TYPES } from '../../world/tasks.ts';
import { capacities } from '../paper-transport.ts';
import { DEFAULT_WEIGHTS, type MacroInput } from '../problem.ts';

const TYPES = TASK_TYPES.length;

/** Shares by origin and region: means over the types of task. `shares`: by origin and type, and region. */
export function byOrigin(shares: Float64Array, regions: number): Float64Array {
  const means = new Float64Array(regions ** 2);
  for (let at = 0; at < shares.length; at++) {
    const entry = Math.floor(at / regions / TYPES) * regions + (at % regions);
    means[entry] = (means[entry] ?? 0) + (shares[at] ?? 0) / TYPES;
  }
  return means;
}

/** The state of each entry. `planned` and `previous`: by origin and region. */
export function stateOf(
  input: MacroInput,
  planned: Float64Array,
  previous: Float64Array,
  history: ArrivalHistory,
): Float64Array {
  const { world, demand, prices, backlogS, use, slotS, arrived, ahead } = input;
  const total = (line: readonly number[]) => line.reduce((sum, count) => sum + count, 0);
  return entryStates({
    expected: demand.map(total),
    next: (ahead ?? demand).map(total),
    came: (arrived ?? demand).map(total),
    history,
    workS: DEFAULT_WEIGHTS.meanWorkS,
    roomS: capacities(input).map((servers) => Math.max(1, servers * slotS)),
    backlogS,
    use,
    prices,
    latencyS: (from, to) => world.topology.latencyS[from]?.[to] ?? Number.POSITIVE_INFINITY,
    planned,
    previous,
  });
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
