import { smoothTransport, type TransportProblem } from '../../../scheduler/regions/smooth-transport.ts';
import { TASK_TYPES } from '../world/tasks.ts';
import type { Topology } from '../world/topology.ts';
import {
  DEFAULT_WEIGHTS,
  type MacroInput,
  type MacroPlan,
  type MacroPlanner,
  type MacroWeights,
  takesType,
  taskUsd,
} from './problem.ts';
import { byCapacity } from './smoothing-planner.ts';

const TYPES = TASK_TYPES.length;

/**
 * Group of each region: centers are the first region and then always the region that is farthest from all centers
 * (Gonzalez 1985); a region belongs to its nearest center. No radius is more than twice the least possible one.
 */
export function groupRegions(latencyS: Topology['latencyS'], groups: number): number[] {
  const nearest = latencyS.map(() => Number.POSITIVE_INFINITY);
  const group = latencyS.map(() => 0);
  let center = 0;
  for (let index = 0; index < Math.min(groups, latencyS.length); index++) {
    for (const [region, line] of latencyS.entries()) {
      const seconds = region === center ? 0 : (line[center] ?? Number.POSITIVE_INFINITY);
      if (seconds >= (nearest[region] ?? 0)) continue;
      nearest[region] = seconds;
      group[region] = index;
    }
    center = nearest.reduce((far, seconds, region) => (seconds > (nearest[far] ?? 0) ? region : far), 0);
  }
  return group;
}

/** Origins of a row: the regions of one group, or one region. */
interface Origins {
  regions: readonly number[];
  /** One way, seconds, to each region: mean of the origins. */
  latencyS: Float64Array;
}

/** One of the small problems, with what its next slot starts from. */
class Stage {
  #last: Float64Array | undefined;
  #duals: Float64Array | undefined;

  solve(problem: TransportProblem, smoothness: number): Float64Array {
    const kept = this.#last?.length === problem.cost.length ? this.#last : byCapacity(problem);
    const { shares, prices } = smoothTransport(problem, kept, smoothness, this.#duals);
    [this.#last, this.#duals] = [shares, prices];
    return shares;
  }
}

/**
 * The smoothing QP in two layers, for many regions: first shares between groups of near regions, then within each group
 * from other groups and from each of its regions. With √R groups the work grows with R^1.5 instead of R².
 */
export function coarsePlanner(groups: number, weights: Partial<MacroWeights> = {}): MacroPlanner {
  const all = { ...DEFAULT_WEIGHTS, ...weights };
  let made: CoarsePlan | undefined;
  return {
    name: `QP of ${groups} groups`,
    plan(input: MacroInput): MacroPlan {
      made ??= new CoarsePlan(input.world.topology, groups, all);
      return { shares: made.plan(input), planner: `QP of ${groups} groups` };
    },
  };
}

class CoarsePlan {
  readonly #weights: MacroWeights;
  readonly #group: readonly number[];
  readonly #members: Origins[];
  readonly #alone: Origins[];
  readonly #between = new Stage();
  readonly #within: Stage[];

  constructor({ latencyS }: Topology, groups: number, weights: MacroWeights) {
    this.#weights = weights;
    this.#group = groupRegions(latencyS, groups);
    this.#alone = latencyS.map((line, region) => ({ regions: [region], latencyS: Float64Array.from(line) }));
    this.#members = Array.from({ length: Math.max(...this.#group) + 1 }, (_, index) => {
      const regions = this.#group.flatMap((own, region) => (own === index ? [region] : []));
      const mean = latencyS.map((_, to) => regions.reduce((sum, from) => sum + (latencyS[from]?.[to] ?? 0), 0));
      return { regions, latencyS: Float64Array.from(mean, (sum) => sum / regions.length) };
    });
    this.#within = this.#members.map(() => new Stage());
  }

  /** Shares by origin and type, and region. */
  plan(input: MacroInput): Float64Array {
    const groups = this.#members.length;
    const outer = this.#between.solve(this.#betweenGroups(input), this.#weights.smoothness);
    const toGroup = sumKinds(outer, input.world.kinds.length);
    const regions = this.#group.length;
    const shares = new Float64Array(regions * TYPES * regions);
    for (const [to, { regions: own }] of this.#members.entries()) {
      const stage = this.#within[to];
      if (stage === undefined) continue;
      const origins = [
        ...this.#members.filter((_, group) => group !== to),
        ...own.flatMap((at) => this.#alone[at] ?? []),
      ];
      const share = (origin: number, type: number) =>
        toGroup[((this.#group[origin] ?? 0) * TYPES + type) * groups + to] ?? 0;
      const problem = this.#problem(input, origins, own, share);
      const inner = sumKinds(stage.solve(problem, this.#weights.smoothness), input.world.kinds.length);
      for (const [row, { regions: from }] of origins.entries())
        for (const origin of from)
          for (let type = 0; type < TYPES; type++)
            for (const [column, region] of own.entries())
              shares[(origin * TYPES + type) * regions + region] =
                share(origin, type) * (inner[(row * TYPES + type) * own.length + column] ?? 0);
    }
    return shares;
  }

  #problem(
    { world, demand, servers, prices, backlogS, slotS }: MacroInput,
    origins: readonly Origins[],
    places: readonly number[],
    share: (origin: number, type: number) => number,
  ): TransportProblem {
    const { secondsPerUsd, meanWorkS, useMax } = this.#weights;
    const kinds = world.kinds.length;
    const [rows, columns] = [origins.length * TYPES, places.length * kinds];
    const [cost, load] = [new Float64Array(rows * columns), new Float64Array(rows * columns)];
    const mass = new Float64Array(rows);
    for (const [row, { regions, latencyS }] of origins.entries())
      for (let type = 0; type < TYPES; type++) {
        mass[row * TYPES + type] = regions.reduce(
          (sum, origin) => sum + (demand[origin]?.[type] ?? 0) * share(origin, type),
          0,
        );
        for (const [place, region] of places.entries())
          for (let kind = 0; kind < kinds; kind++) {
            const at = (row * TYPES + type) * columns + place * kinds + kind;
            const seconds = (world.kinds[kind]?.factor[type] ?? 1) * meanWorkS;
            const can = (servers[region]?.[kind] ?? 0) > 0 && takesType(world, kind, type);
            const usd = taskUsd(world, kind, seconds, prices[region] ?? 0);
            cost[at] = can ? 2 * (latencyS[region] ?? 0) + seconds + secondsPerUsd * usd : Number.POSITIVE_INFINITY;
            load[at] = seconds;
          }
      }
    const capacity = Float64Array.from({ length: columns }, (_, column) => {
      const [region, kind] = [places[Math.floor(column / kinds)] ?? 0, column % kinds];
      const total = (servers[region] ?? []).reduce((sum, count) => sum + count, 0);
      const count = servers[region]?.[kind] ?? 0;
      return Math.max(0, count * slotS * useMax - (total > 0 ? ((backlogS[region] ?? 0) * count) / total : 0));
    });
    return { rows, columns, mass, cost, load, capacity };
  }

  /** Groups as regions: servers and backlogs are summed, prices and latencies are means. */
  #betweenGroups(input: MacroInput): TransportProblem {
    const sumOf = (regions: readonly number[], lines: readonly (readonly number[])[]) =>
      (lines[0] ?? []).map((_, at) => regions.reduce((sum, region) => sum + (lines[region]?.[at] ?? 0), 0));
    const members = this.#members;
    const joined: MacroInput = {
      ...input,
      demand: members.map(({ regions }) => sumOf(regions, input.demand)),
      servers: members.map(({ regions }) => sumOf(regions, input.servers)),
      backlogS: members.map(({ regions }) => regions.reduce((sum, region) => sum + (input.backlogS[region] ?? 0), 0)),
      prices: members.map(
        ({ regions }) => regions.reduce((sum, region) => sum + (input.prices[region] ?? 0), 0) / regions.length,
      ),
    };
    // Tasks of a group can stay in their region, so that the latency within a group is that within a region.
    const origins = members.map(
      ({ regions, latencyS }, group): Origins => ({
        regions: [group],
        latencyS: Float64Array.from(members, ({ regions: to }, other) => {
          const [first = 0] = regions;
          if (other === group) return this.#alone[first]?.latencyS[first] ?? 0;
          return to.reduce((sum, region) => sum + (latencyS[region] ?? 0), 0) / to.length;
        }),
      }),
    );
    return this.#problem(joined, origins, [...members.keys()], () => 1);
  }
}

/** Sums shares of places by kinds of server. */
function sumKinds(shares: Float64Array, kinds: number): Float64Array {
  const summed = new Float64Array(shares.length / kinds);
  for (let at = 0; at < shares.length; at++) {
    const place = Math.floor(at / kinds);
    summed[place] = (summed[place] ?? 0) + (shares[at] ?? 0);
  }
  return summed;
}
