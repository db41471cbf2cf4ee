import { balance } from '../../scheduler/assignment/demand-assignment.ts';
import type { RateTable } from '../../scheduler/assignment/rate-table.ts';
import type { Assignment, Shape, ShapeRates } from '../../scheduler/assignment/types.ts';
import { seededRandom } from '../../scheduler/simulator/random.ts';
import { type DeploymentPlan, gpusOfShape, keyOf } from './deployment-plan.ts';

export interface SearchOptions {
  seed: number;
  /** Number of starting plans, because a search by exchange ends in local optima. */
  starts?: number;
}

export interface FoundPlan {
  plan: DeploymentPlan;
  /** Load of its fullest group: the makespan of one second's demand. */
  load: number;
  /** Number of evaluated plans. */
  weighed: number;
  rounds: number;
}

/** Most moves of one round that are evaluated. */
const MOVES_MAX = 400;
/** Rounds without a better plan after which the search ends (OServe §4.3). */
const FLAT_ROUNDS = 20;
/** Probability of accepting a plan that is equal to the previous one, because it may lead to better plans. */
const EQUAL_TAKEN = 0.3;

/** Returns the load of a plan, cached by its key. */
function loadOfPlan(shapes: readonly ShapeRates[], demand: readonly number[]): (plan: DeploymentPlan) => number {
  const known = new Map<string, number>();
  const flow = flowOf(shapes, demand);
  return (plan) => {
    const key = keyOf(plan);
    const before = known.get(key);
    if (before !== undefined) return before;
    const { load, served } = flow(plan);
    const whole = demand.every((wanted, j) => (served[j] ?? 0) >= wanted * (1 - 1e-9));
    const value = whole ? load : Number.POSITIVE_INFINITY;
    known.set(key, value);
    return value;
  };
}

/** Returns the assignment of the demand to the groups of a plan. */
function flowOf(shapes: readonly ShapeRates[], demand: readonly number[]): (plan: DeploymentPlan) => Assignment {
  const rates = new Map(shapes.map((one) => [`${one.shape.tp}.${one.shape.pp}`, one.rates]));
  return (plan) =>
    balance({
      rates: plan.map(({ shape }) => rates.get(`${shape.tp}.${shape.pp}`) ?? []),
      replicas: plan.map(({ replicas }) => replicas),
      demand,
    });
}

/** Groups with at least this share of the fullest group's load are bottlenecks: only they limit the throughput. */
const BOTTLENECK = 0.999;

/** True for each group that is a bottleneck of the flow; the others have slack. */
function bottlenecksOf({ loads, load }: Assignment): boolean[] {
  return loads.map((own) => own >= load * BOTTLENECK);
}

/**
 * Flow-guided search (OServe Algorithm 1): the flow shows which replicas are bottlenecks and which have slack.
 * Bottlenecks are merged with each other, and exchange GPUs with replicas that have slack; replicas with slack are
 * split; each gets its best shape. All moves of a round are evaluated on the same plan, and the best is applied. A round
 * in which none of them helps also tries the moves that the flow does not suggest.
 */
export function flowGuided(
  table: RateTable,
  gpus: number,
  demand: readonly number[],
  options: SearchOptions,
): FoundPlan {
  const bySize = new Map<number, Shape[]>();
  for (const { shape } of table.shapes) {
    const size = gpusOfShape(shape);
    bySize.set(size, [...(bySize.get(size) ?? []), shape]);
  }
  const weigh = loadOfPlan(table.shapes, demand);
  const flow = flowOf(table.shapes, demand);
  const random = seededRandom(options.seed);
  const sizes = [...bySize.keys()].sort((a, b) => a - b);
  const starts = startsOf(sizes, gpus, options.starts ?? 4).map((sizesOf) => plainPlan(sizesOf, bySize));
  let best: FoundPlan = { plan: starts[0] ?? [], load: Number.POSITIVE_INFINITY, weighed: 0, rounds: 0 };
  let [weighed, rounds] = [0, 0];
  for (const start of starts) {
    let [plan, load, flat] = [start, weigh(start), 0];
    if (load < best.load) best = { ...best, plan, load };
    while (flat < FLAT_ROUNDS) {
      rounds++;
      const { suggested, others } = movesOf(plan, bottlenecksOf(flow(plan)), bySize);
      let [next, least]: [DeploymentPlan | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
      let all = true;
      for (const some of [suggested, others]) {
        const tried = sampleOf(some, random);
        all &&= tried.length === some.length;
        weighed += tried.length;
        for (const move of tried) {
          const value = weigh(move);
          if (value < least) [next, least] = [move, value];
        }
        if (least < load * (1 - 1e-9)) break;
      }
      const better = least < load * (1 - 1e-9);
      const equal = !better && least <= load * (1 + 1e-3) && random() < EQUAL_TAKEN;
      flat = better ? 0 : flat + 1;
      if (next !== undefined && (better || equal)) [plan, load] = [next, least];
      if (load < best.load) best = { ...best, plan, load };
      if (!better && !equal && all) break;
    }
  }
  return { ...best, weighed, rounds };
}

/** Initial sizes of replicas: all of one size, the smallest first; remaining GPUs go to the last replicas. */
function startsOf(sizes: readonly number[], gpus: number, most: number): number[][] {
  return sizes
    .filter((size) => size <= gpus)
    .slice(0, most)
    .map((size) => {
      const found = new Array<number>(Math.floor(gpus / size)).fill(size);
      let left = gpus - size * found.length;
      for (let i = 0; left > 0 && i < found.length; i++) {
        const larger = sizes.findLast((one) => one > size && one - size <= left);
        if (larger === undefined) break;
        found[i] = larger;
        left -= larger - size;
      }
      return found;
    });
}

/** Each size in its widest tensor parallelism, as Algorithm 1 begins. */
function plainPlan(sizes: readonly number[], bySize: ReadonlyMap<number, readonly Shape[]>): DeploymentPlan {
  return grouped(sizes.flatMap((size) => bySize.get(size)?.slice(0, 1) ?? []));
}

function grouped(shapes: readonly Shape[]): DeploymentPlan {
  const groups = new Map<string, { shape: Shape; replicas: number }>();
  for (const shape of shapes) {
    const key = `${shape.tp}.${shape.pp}`;
    const known = groups.get(key);
    if (known === undefined) groups.set(key, { shape, replicas: 1 });
    else known.replicas++;
  }
  return [...groups.values()];
}

/** Plans that are one move away, and those of them that the flow suggests. */
interface Moves {
  suggested: DeploymentPlan[];
  others: DeploymentPlan[];
}

/**
 * Moves: two replicas become one, or two others on the same GPUs (merge, swap), or one becomes two (split) or gets
 * another shape.
 */
function movesOf(
  plan: DeploymentPlan,
  isBottleneck: readonly boolean[],
  bySize: ReadonlyMap<number, readonly Shape[]>,
): Moves {
  const shapes = plan.flatMap(({ shape, replicas }) => new Array<Shape>(replicas).fill(shape));
  const kinds = plan.map(({ shape }) => shape);
  const moves: Moves = { suggested: [], others: [] };
  const without = (...gone: Shape[]) => {
    const left = [...shapes];
    for (const shape of gone) left.splice(left.indexOf(shape), 1);
    return left;
  };
  const add = (isSuggested: boolean, left: readonly Shape[], sizes: readonly number[]) => {
    const found = isSuggested ? moves.suggested : moves.others;
    const [first, second] = sizes.map((size) => bySize.get(size));
    for (const a of first ?? []) {
      if (sizes.length === 1) found.push(grouped([...left, a]));
      else for (const b of second ?? []) found.push(grouped([...left, a, b]));
    }
  };
  for (const [i, a] of kinds.entries()) {
    const size = gpusOfShape(a);
    const full = isBottleneck[i] === true;
    add(true, without(a), [size]);
    for (const part of bySize.keys())
      if (part <= size / 2 && bySize.has(size - part)) add(!full, without(a), [part, size - part]);
    for (const [j, b] of kinds.entries()) {
      if (j < i || (i === j && (plan[i]?.replicas ?? 0) < 2)) continue;
      const both = size + gpusOfShape(b);
      const otherFull = isBottleneck[j] === true;
      add(full && otherFull, without(a, b), [both]);
      for (const part of bySize.keys())
        if (part <= both / 2 && bySize.has(both - part)) add(full !== otherFull, without(a, b), [part, both - part]);
    }
  }
  return moves;
}

/** At most MOVES_MAX of the moves; the next round draws others. */
function sampleOf(moves: readonly DeploymentPlan[], random: () => number): readonly DeploymentPlan[] {
  if (moves.length <= MOVES_MAX) return moves;
  const drawn = [...moves];
  for (let i = 0; i < MOVES_MAX; i++) {
    const other = i + Math.floor(random() * (drawn.length - i));
    const [x, y] = [drawn[i], drawn[other]];
    if (x !== undefined && y !== undefined) [drawn[i], drawn[other]] = [y, x];
  }
  return drawn.slice(0, MOVES_MAX);
}

/** Up to this number of GPUs, all plans are enumerated; above it the guided search is used. */
export const EXHAUSTIVE_MAX_GPUS = 24;

/** Returns the plan with the lowest load. */
export function leastLoaded(
  shapes: readonly ShapeRates[],
  plans: readonly DeploymentPlan[],
  demand: readonly number[],
): { plan: DeploymentPlan; load: number } {
  const weigh = loadOfPlan(shapes, demand);
  let [best, least]: [DeploymentPlan, number] = [[], Number.POSITIVE_INFINITY];
  for (const plan of plans) {
    const load = weigh(plan);
    if (load < least) [best, least] = [plan, load];
  }
  return { plan: best, load: least };
}
